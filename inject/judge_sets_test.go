// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

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
