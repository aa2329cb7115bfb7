// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// TestJudgeCorpus: every captured pod, injected, is right; and damaged in any
// single place that was added, it is refused with a finding that names the place.
func TestJudgeCorpus(t *testing.T) {
	t.Parallel()
	injector := inject.New(protected(t))
	judge := inject.NewJudge(injector, nil, true)
	corpus(t, func(t *testing.T, _ string, req inject.Request) {
		t.Parallel()
		checkJudgement(t, injector, judge, req)
	})
}

// TestJudgeDamage is TestJudgeCorpus for a pod that needs no corpus.
func TestJudgeDamage(t *testing.T) {
	t.Parallel()
	injector := inject.New(protected(t))
	n := checkJudgement(t, injector, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", Object: []byte(
		`{"metadata":{"generateName":"web-","labels":{"app":"web"}},"spec":{
		"initContainers":[{"name":"migrate","image":"m:1"},{"name":"init","image":"i:1"}],
		"containers":[{"name":"web","image":"w:1","env":[{"name":"A","value":"b"}]},{"name":"worker","image":"w:1"}],
		"volumes":[{"name":"kube-api-access-x","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]}}`)})
	if n < 100 {
		t.Errorf("only %d places were damaged", n)
	}
}

// protected are templates with everything in their containers protected.
func protected(t *testing.T) *templates.Set {
	var fields []string
	for f := range reflect.TypeFor[corev1.Container]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	var all []*templates.Template
	for _, name := range []string{"log-agent", "proxy", "reader"} {
		text, err := os.ReadFile(filepath.Join("testdata", "templates", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		// What is protected may not depend on what injection itself changes.
		text = bytes.ReplaceAll(text, []byte("${string(pod.spec.containers.size())}"), []byte("--prepare"))
		found, problems := templates.Parse(name, text)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		found[0].Spec.Validate = templates.ValidateRules{Mode: templates.Deny, Protect: fields}
		all = append(all, found...)
	}
	return templates.NewSet(all)
}

func checkJudgement(t *testing.T, injector *inject.Injector, judge *inject.Judge, req inject.Request) (damaged int) {
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	failed := slices.ContainsFunc(r.Decisions, func(d inject.Decision) bool {
		return d.Code == inject.CodeConflict || d.Code == inject.CodeInvalidParameter || d.Code == inject.CodeRenderFailed
	})
	before := req.Object
	req.Object = applyPatch(t, before, r.Patch())
	verdict := mustJudge(t, judge, req)
	if verdict.Denied != failed || !failed && len(verdict.Judged) > len(r.Findings) {
		t.Fatalf("an injected pod: %v", verdict.Judged)
	}
	if failed {
		return 0
	}
	whole := decodeJSON(t, req.Object)
	for _, place := range places(decodeJSON(t, before), whole, "") {
		var damages []func(any) any
		if !strings.HasSuffix(place, "/name") || strings.Contains(place, "/env/") { // without one the API server refuses it
			damages = append(damages, nil)
		}
		names, was := strings.Split(place, "/"), lookUp(whole, place)
		if _, text := was.(string); text && len(names) > 4 && strings.HasSuffix(names[2], "ontainers") {
			damages = append(damages, func(v any) any { return v.(string) + "-changed" })
		}
		for _, damage := range damages {
			if req.Object, err = json.Marshal(replace(whole, names[1:], damage)); err != nil {
				t.Fatal(err)
			}
			damaged++
			if found := mustJudge(t, judge, req); !found.Denied || !slices.ContainsFunc(found.Judged, func(f inject.Finding) bool { return namesPlace(&f, place, was) }) {
				t.Errorf("%s (was %v) is damaged, but the findings are %v", place, was, found.Judged)
			}
		}
	}
	return damaged
}

func mustJudge(t *testing.T, judge *inject.Judge, req inject.Request) *inject.Verdict {
	t.Helper()
	v, err := judge.Judge(req)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// setOf makes a set of the agent's template, with edits of its text.
func setOf(t *testing.T, edits ...string) *inject.Injector {
	t.Helper()
	const agent = "apiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplate\nmetadata: {name: agent}\nspec:\n  required: true\n" +
		"  pod: {spec: {initContainers: [{name: agent, image: \"agent:1\", restartPolicy: Always}]}}\n  validate: {protect: [image]}\n"
	found, problems := templates.Parse("agent", []byte(strings.NewReplacer(edits...).Replace(agent)))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return inject.New(templates.NewSet(found))
}

func injectedBy(t *testing.T, injector *inject.Injector, pod string) inject.Request {
	t.Helper()
	req := inject.Request{Operation: "CREATE", Object: []byte(pod)}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	req.Object = applyPatch(t, req.Object, r.Patch())
	return req
}

// TestJudgeSets: which verdict a pod gets that was injected by one set and is
// judged where another is in use.
func TestJudgeSets(t *testing.T) {
	t.Parallel()
	before, now := setOf(t), setOf(t, "agent:1", "agent:2")
	added := setOf(t, "---", "", "  validate:", "  forEachContainer: [{add: {env: [{name: A, value: b}]}}]\n  validate:")
	none := inject.New(templates.NewSet(nil))
	const plain = `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}`
	evil := func(revision string) string {
		return `{"metadata":{"name":"web","annotations":{"agent.pillion.dev/injected":"` + revision + `"}},"spec":{
			"initContainers":[{"name":"agent","image":"evil:1","restartPolicy":"Always"}],"containers":[{"name":"web","image":"web"}]}}`
	}
	revision := func(i *inject.Injector) string { return i.Set().Templates[0].Revision }
	kept := []*inject.Injector{before}
	for name, c := range map[string]struct {
		judge *inject.Judge
		pod   inject.Request
		want  string
	}{
		"the set in use":                          {inject.NewJudge(now, nil, true), injectedBy(t, now, plain), "allowed"},
		"one superseded a moment ago":             {inject.NewJudge(now, kept, false), injectedBy(t, before, plain), "allowed"},
		"one superseded long ago":                 {inject.NewJudge(now, nil, true), injectedBy(t, before, plain), "doubted"},
		"one that is not known yet":               {inject.NewJudge(before, nil, true), injectedBy(t, now, plain), "doubted"},
		"one with less, not known":                {inject.NewJudge(added, nil, true), injectedBy(t, before, plain), "doubted"},
		"one with more, not known, is right":      {inject.NewJudge(before, nil, true), injectedBy(t, added, plain), "allowed"},
		"none, by a replica that is behind":       {inject.NewJudge(now, []*inject.Injector{none}, false), injectedBy(t, none, plain), "allowed"},
		"none, and this replica has just begun":   {inject.NewJudge(now, nil, false), injectedBy(t, none, plain), "doubted"},
		"none, and this replica is settled":       {inject.NewJudge(now, nil, true), injectedBy(t, none, plain), "denied"},
		"forged: the one in use":                  {inject.NewJudge(now, kept, false), injectedBy(t, now, evil(revision(now))), "denied"},
		"forged: one superseded a moment ago":     {inject.NewJudge(now, kept, false), injectedBy(t, now, evil(revision(before))), "denied"},
		"forged: one that nobody knows":           {inject.NewJudge(now, kept, false), injectedBy(t, now, evil("ffffffffffff")), "doubted"},
		"forged, and the mutating webhook is out": {inject.NewJudge(now, nil, true), injectedBy(t, none, evil(revision(now))), "denied"},
	} {
		if v := mustJudge(t, c.judge, c.pod); v.Word() != c.want {
			t.Errorf("%s: %s, want %s: %v", name, v.Word(), c.want, v.Judged)
		}
	}
	var many []*inject.Injector
	for i := range 2 * inject.MaxSets {
		many = append(many, setOf(t, "agent:1", fmt.Sprint("agent:old-", i)))
	}
	judge := inject.NewJudge(now, many, false)
	for i := range many {
		want := "allowed"
		if i >= inject.MaxSets-1 {
			want = "doubted"
		}
		if v := mustJudge(t, judge, injectedBy(t, many[i], plain)); v.Word() != want {
			t.Errorf("%d sets ago: %s, want %s", i+1, v.Word(), want)
		}
	}
}

// places are the pointers into the injected pod of all that was added: of
// containers and volumes each value in them, of the rest what was added as one.
func places(before, after any, at string) []string {
	var all []string
	switch after := after.(type) {
	case map[string]any:
		before, _ := before.(map[string]any)
		for _, name := range sorted(after) {
			child := at + "/" + tree.Escape(name)
			if after[name] == nil {
				continue
			}
			if there := before[name]; there != nil && fmt.Sprint(there) != "[]" || fmt.Sprint(after[name]) == "[]" {
				all = append(all, places(there, after[name], child)...)
			} else {
				all = append(all, added(after[name], child)...)
			}
		}
	case []any:
		before, _ := before.([]any)
		for i := range after {
			child := at + "/" + strconv.Itoa(i)
			if len(before) > 0 && lost(before[0], after[i], "") == "" {
				all = append(all, places(before[0], after[i], child)...)
				before = before[1:]
			} else {
				all = append(all, added(after[i], child)...)
			}
		}
	}
	return all
}

// added are the places of what was added as one.
func added(value any, at string) []string {
	names := strings.Split(at, "/")[1:]
	whole := []string{at}
	switch {
	case len(names) < 3: // /metadata/labels, /spec/volumes ...
		return append(whole, each(value, at)...)
	case len(names) == 3 && (names[1] == "volumes" || strings.HasSuffix(names[1], "ontainers")):
		return append(whole, below(value, at, 100)...)
	}
	if _, list := value.([]any); list {
		return append(whole, each(value, at)...)
	}
	return whole
}

// each are the places of the items or members of what was added as one.
func each(value any, at string) []string {
	var all []string
	for _, child := range below(value, at, 1) {
		all = append(all, added(lookUp(value, strings.TrimPrefix(child, at)), child)...)
	}
	return all
}

// below are the pointers of what is in a value, down to that many levels. What
// means the same when it is not there is left out.
func below(value any, at string, levels int) []string {
	if levels == 0 {
		return nil
	}
	var all []string
	add := func(name string, child any) {
		if text := fmt.Sprint(child); text != "" && text != "false" && text != "<nil>" && text != "[]" && text != "map[]" {
			all = append(append(all, at+"/"+name), below(child, at+"/"+name, levels-1)...)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range sorted(value) {
			add(tree.Escape(name), value[name])
		}
	case []any:
		for i := range value {
			add(strconv.Itoa(i), value[i])
		}
	}
	return all
}

// namesPlace says whether a finding tells of a damage: at the place itself, in
// it, above it where it is taken as a whole, or as an item that its list lacks.
func namesPlace(f *inject.Finding, place string, was any) bool {
	if strings.Count(f.Path, "/") < 2 {
		return false
	}
	if f.Path == place || strings.HasPrefix(place, f.Path+"/") || strings.HasPrefix(f.Path, place+"/") {
		return true
	}
	if item, ok := strings.CutSuffix(place, "/name"); ok && strings.HasPrefix(f.Path, item+"/") {
		return true // under its new name it is in the way
	}
	list, ok := strings.CutSuffix(f.Path, "/-")
	if !ok || !strings.HasPrefix(place, list) {
		return false
	}
	// The item is gone, or what tells it from the others.
	text, err := json.Marshal(was)
	if err != nil {
		return false
	}
	var expected, item any
	if json.Unmarshal([]byte(f.Expected), &expected) != nil || json.Unmarshal(text, &item) != nil {
		return false
	}
	return reflect.DeepEqual(expected, item) || strings.Contains(f.Expected, string(text))
}

func lookUp(doc any, pointer string) any {
	for _, name := range strings.Split(pointer, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch at := doc.(type) {
		case map[string]any:
			doc = at[name]
		case []any:
			i, _ := strconv.Atoi(name)
			doc = at[i]
		}
	}
	return doc
}

// replace is a copy of doc with the value at the names replaced, or removed where f is nil.
func replace(doc any, names []string, f func(any) any) any {
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(names[0])
	last := len(names) == 1
	change := func(v any) any {
		if last {
			return f(v)
		}
		return replace(v, names[1:], f)
	}
	if object, ok := doc.(map[string]any); ok {
		object = maps.Clone(object)
		if last && f == nil {
			delete(object, name)
		} else {
			object[name] = change(object[name])
		}
		return object
	}
	list := slices.Clone(doc.([]any))
	i, _ := strconv.Atoi(name)
	if last && f == nil {
		return slices.Delete(list, i, i+1)
	}
	list[i] = change(list[i])
	return list
}

// TestJudgeTricks: what looks as it should, and is not.
func TestJudgeTricks(t *testing.T) {
	t.Parallel()
	const template = `apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: agent}
spec:
  required: true
  pod:
    spec:
      initContainers:
      - name: agent
        restartPolicy: Always
        image: agent:1
        env: [{name: A, value: "1"}, {name: B, value: "$(A)"}]
        envFrom: [{configMapRef: {name: conf}}]
        ports: [{containerPort: 80}]
        volumeMounts: [{name: logs, mountPath: /logs}, {name: conf, mountPath: /conf}]
      volumes: [{name: logs, emptyDir: {}}, {name: conf, configMap: {name: conf}}]
  validate: {protect: [image, env, envFrom, ports, volumeMounts]}
---
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: plain}
spec:
  order: -1
  default: true
  pod: {spec: {volumes: [{name: logs, emptyDir: {}}]}}
  forEachContainer: [{add: {env: [{name: PROXY, value: "on"}]}}]
`
	found, problems := templates.Parse("t", []byte(template))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	slices.Reverse(found)
	injector := inject.New(templates.NewSet(found))
	judge := inject.NewJudge(injector, nil, true)
	right := injectedBy(t, injector, `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}`)
	if v := mustJudge(t, judge, right); v.Word() != "allowed" {
		t.Fatalf("the right pod: %v", v.Judged)
	}
	for name, edit := range map[string][2]string{
		"a variable twice":             {`{"name":"B","value":"$(A)"}`, `{"name":"B","value":"$(A)"},{"name":"A","value":"evil"}`},
		"variables in another order":   {`{"name":"A","value":"1"},{"name":"B","value":"$(A)"}`, `{"name":"B","value":"$(A)"},{"name":"A","value":"1"}`},
		"a mount over a mount":         {`{"name":"conf","mountPath":"/conf"}`, `{"name":"conf","mountPath":"/conf"},{"name":"logs","mountPath":"/conf/"}`},
		"a port twice":                 {`{"containerPort":80}`, `{"containerPort":80},{"containerPort":80,"hostPort":8080}`},
		"more in envFrom":              {`{"configMapRef":{"name":"conf"}}`, `{"prefix":"X_","configMapRef":{"name":"conf"}}`},
		"optional in envFrom":          {`{"configMapRef":{"name":"conf"}}`, `{"configMapRef":{"name":"conf","optional":true}}`},
		"other files of a ConfigMap":   {`"configMap":{"name":"conf"}`, `"configMap":{"name":"conf","items":[{"key":"evil","path":"agent.conf"}]}`},
		"an optional ConfigMap":        {`"configMap":{"name":"conf"}`, `"configMap":{"name":"conf","optional":true}`},
		"another source of a volume":   {`"name":"logs","emptyDir":{}`, `"name":"logs","hostPath":{"path":"/"}`},
		"no native sidecar":            {`"restartPolicy":"Always"`, `"restartPolicy":"Never"`},
		"a token of somebody else's":   {`{"name":"conf","mountPath":"/conf"}`, `{"name":"conf","mountPath":"/conf"},{"name":"kube-api-access-evil","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}`},
		"what another would add again": {`{"name":"logs","emptyDir":{}},`, ``},
	} {
		req := right
		req.Object = bytes.Replace(right.Object, []byte(edit[0]), []byte(edit[1]), 1)
		if bytes.Equal(req.Object, right.Object) {
			t.Fatalf("%s changes nothing in %s", name, right.Object)
		}
		if v := mustJudge(t, judge, req); v.Word() != "denied" {
			t.Errorf("%s: %s %v", name, v.Word(), v.Judged)
		}
	}
	// What Kubernetes fills in is none of these.
	for _, edit := range [][2]string{
		{`"configMap":{"name":"conf"}`, `"configMap":{"name":"conf","defaultMode":420}`},
		{`{"containerPort":80}`, `{"containerPort":80,"protocol":"TCP"}`},
		{`"name":"logs","emptyDir":{}`, `"emptyDir":{},"name":"logs"`},
	} {
		req := right
		req.Object = bytes.Replace(right.Object, []byte(edit[0]), []byte(edit[1]), 1)
		if v := mustJudge(t, judge, req); v.Word() != "allowed" {
			t.Errorf("%s: %v", edit[1], v.Judged)
		}
	}
}

// TestRequiredForEachIsNotEscaped: by the name and image of another template's
// container alone no app container escapes what a required template adds.
func TestRequiredForEachIsNotEscaped(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("t", []byte(`apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: shell}
spec: {default: true, pod: {spec: {containers: [{name: shell, image: "busybox:1"}]}}}
---
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: guard}
spec: {required: true, forEachContainer: [{add: {env: [{name: GUARD, value: "on"}]}}]}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	slices.Reverse(found)
	r, err := inject.New(templates.NewSet(found)).Inject(inject.Request{Operation: "CREATE", Object: []byte(
		`{"spec":{"containers":[{"name":"shell","image":"busybox:1","command":["/bin/sh","-c","my whole app"]}]}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(r.Patch(), []byte("GUARD")) {
		t.Errorf("escaped: %s", r.Patch())
	}
}

// TestManyAnnotations: what nobody will read is not computed, and what denies is
// not crowded out.
func TestManyAnnotations(t *testing.T) {
	t.Parallel()
	agent := setOf(t)
	annotations := map[string]string{"agent.pillion.dev/injected": agent.Set().Templates[0].Revision, "agent.pillion.dev/lvel": "x"}
	for i := range 100 {
		annotations[fmt.Sprintf("a-template-that-nobody-has-%d.pillion.dev/x", i)] = "y"
	}
	text, err := json.Marshal(annotations)
	if err != nil {
		t.Fatal(err)
	}
	req := injectedBy(t, agent, `{"metadata":{"annotations":`+string(text)+`},"spec":{"containers":[{"name":"web"}]}}`)
	if v := mustJudge(t, inject.NewJudge(agent, nil, true), req); v.Word() != "denied" || len(v.Judged) != 16 {
		t.Errorf("%s with %d findings", v.Word(), len(v.Judged))
	}
}
