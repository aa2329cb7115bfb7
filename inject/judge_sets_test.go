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

// setOf returns a set with the agent's template after edits.
func setOf(t *testing.T, edits ...string) *inject.Injector {
	t.Helper()
	const agent = "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: agent}\nspec:\n  required: true\n" +
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

// TestJudgeSets checks the verdict on a pod that one set injected and another set judges.
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
	warn := setOf(t, "  required: true", "  default: true")
	for name, c := range map[string]struct {
		judge *inject.Judge
		pod   inject.Request
		want  string
	}{
		"the set in use":                          {inject.NewJudge(now, nil, true), injectedBy(t, now, plain), "allowed"},
		"one superseded a moment ago":             {inject.NewJudge(now, kept, true), injectedBy(t, before, plain), "allowed"},
		"one superseded long ago":                 {inject.NewJudge(now, nil, true), injectedBy(t, before, plain), "doubted"},
		"one that is not known yet":               {inject.NewJudge(before, nil, true), injectedBy(t, now, plain), "doubted"},
		"one with less, not known":                {inject.NewJudge(added, nil, true), injectedBy(t, before, plain), "doubted"},
		"one with more, not known, is right":      {inject.NewJudge(before, nil, true), injectedBy(t, added, plain), "allowed"},
		"none, by a replica that is behind":       {inject.NewJudge(now, []*inject.Injector{none}, true), injectedBy(t, none, plain), "denied"},
		"none, mode Warn, one that is behind":     {inject.NewJudge(warn, []*inject.Injector{none}, true), injectedBy(t, none, plain), "allowed"},
		"none, mode Warn, not known":              {inject.NewJudge(warn, nil, true), injectedBy(t, none, plain), "denied"},
		"none, and this replica has just begun":   {inject.NewJudge(now, nil, false), injectedBy(t, none, plain), "doubted"},
		"none, and this replica is settled":       {inject.NewJudge(now, nil, true), injectedBy(t, none, plain), "denied"},
		"forged: the one in use":                  {inject.NewJudge(now, kept, true), injectedBy(t, now, evil(revision(now))), "denied"},
		"forged: one superseded a moment ago":     {inject.NewJudge(now, kept, true), injectedBy(t, now, evil(revision(before))), "denied"},
		"forged: one that nobody knows":           {inject.NewJudge(now, kept, true), injectedBy(t, now, evil("ffffffffffff")), "doubted"},
		"forged, and the mutating webhook is out": {inject.NewJudge(now, nil, true), injectedBy(t, none, evil(revision(now))), "denied"},
	} {
		v := mustJudge(t, c.judge, c.pod)
		if word(v) != c.want {
			t.Errorf("%s: %s, want %s: %v", name, word(v), c.want, v.Judged)
		}
		if said := inject.Denial(v.Judged); v.Denied && strings.Contains(said, "changed") {
			t.Errorf("%s: whether templates have changed is not known, but it says %s", name, said)
		}
	}
	var many []*inject.Injector
	for i := range 2 * inject.MaxSets {
		many = append(many, setOf(t, "agent:1", fmt.Sprint("agent:old-", i)))
	}
	judge := inject.NewJudge(now, many, true)
	for i := range many {
		want := "allowed"
		if i >= inject.MaxSets-1 {
			want = "doubted"
		}
		if v := mustJudge(t, judge, injectedBy(t, many[i], plain)); word(v) != want {
			t.Errorf("%d sets ago: %s, want %s", i+1, word(v), want)
		}
	}
}

// word returns the verdict's word, or "doubted" if another replica may have another verdict.
func word(v *inject.Verdict) string {
	if v.Doubt {
		return "doubted"
	}
	return v.Word()
}

// parsed returns an injector for templates.
func parsed(t *testing.T, text string) *inject.Injector {
	t.Helper()
	found, problems := templates.Parse("t", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	slices.SortFunc(found, func(a, b *templates.Template) int { return strings.Compare(a.Name, b.Name) })
	return inject.New(templates.NewSet(found))
}

// pieces returns templates that add different parts to a pod.
func pieces(spec string) map[string]string {
	const head = "---\napiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: NAME}\nspec:\n"
	all := map[string]string{
		"container": "  pod: {spec: {containers: [{name: side, image: side}]}}\n",
		"variable":  "  forEachContainer: [{add: {env: [{name: A, value: b}]}}]\n",
		"volume":    "  pod: {spec: {volumes: [{name: v, emptyDir: {}}]}}\n  forEachContainer: [{add: {volumeMounts: [{name: v, mountPath: /v}]}}]\n",
		"label":     "  pod: {metadata: {labels: {label.pillion.dev/side: car}}}\n",
		"nothing":   "  pod: {metadata: {annotations: {side: car}}}\n",
	}
	for name, body := range all {
		all[name] = strings.Replace(head, "NAME", name, 1) + spec + body
	}
	return all
}

// TestUninjected checks a pod that has nothing of a template because the mutating webhook was not
// called. It is denied, whatever the mode, the template's additions and the pod's records are. If
// the Judge is lenient, or if a part was removed later, the mode decides.
func TestUninjected(t *testing.T) {
	t.Parallel()
	const plain = `{"metadata":{"name":"web","annotations":{"some":"thing"}},"spec":{"containers":[{"name":"web","image":"web"}]}}`
	const bare = `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}`
	other := parsed(t, "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: other}\nspec: {default: true, pod: {metadata: {annotations: {an: other}}}}\n")
	both := func(i *inject.Injector) *inject.Injector {
		return inject.New(templates.NewSet(append(slices.Clone(i.Set().Templates), other.Set().Templates...)))
	}
	for _, mode := range []string{"Warn", "Deny"} {
		byMode := map[string]string{"Warn": "warned", "Deny": "denied"}[mode]
		for name, text := range pieces("  default: true\n  validate: {mode: " + mode + "}\n") {
			injector := parsed(t, text)
			for _, pod := range []string{plain, bare} {
				req := inject.Request{Operation: "CREATE", Object: []byte(pod)}
				v := mustJudge(t, inject.NewJudge(injector, nil, true), req)
				if v.Word() != "denied" || !strings.HasSuffix(inject.Denial(v.Judged), "; create the pod again") {
					t.Errorf("%s, %s: %s: %v", name, mode, v.Word(), v.Judged)
				}
				if v := mustJudge(t, inject.NewJudge(injector, nil, true).Lenient(), req); v.Word() != byMode {
					t.Errorf("%s, %s, not strict: %s: %v", name, mode, v.Word(), v.Judged)
				}
				record := []byte(fmt.Sprintf(`%q:%q`, name+".pillion.dev/injected", injector.Set().Templates[0].Revision))
				stripped := injectedBy(t, injector, plain)
				if !bytes.Contains(stripped.Object, record) {
					t.Fatalf("%s: no record in %s", name, stripped.Object)
				}
				stripped.Object = bytes.Replace(stripped.Object, append(record, ','), nil, 1)
				stripped.Object = bytes.Replace(stripped.Object, append([]byte{','}, record...), nil, 1)
				if v := mustJudge(t, inject.NewJudge(injector, nil, true), stripped); v.Word() != byMode || v.Judged[0].Code != inject.CodeMissing {
					t.Errorf("%s, %s, without the record: %s: %v", name, mode, v.Word(), v.Judged)
				}
				v = mustJudge(t, inject.NewJudge(both(injector), nil, true), injectedBy(t, other, pod))
				if v.Word() != "denied" || v.Doubt {
					t.Errorf("%s, %s, another template is there: %s: %v", name, mode, v.Word(), v.Judged)
				}
				forged := fmt.Sprintf(`"annotations":{%q:"%s",%q:%q,`, name+".pillion.dev/injected", "REVISION", "other.pillion.dev/injected", other.Set().Templates[0].Revision)
				for _, revision := range []string{injector.Set().Templates[0].Revision, "ffffffffffff"} {
					req.Object = []byte(strings.Replace(plain, `"annotations":{`, strings.Replace(forged, "REVISION", revision, 1), 1))
					v = mustJudge(t, inject.NewJudge(both(injector), nil, true), req)
					if v.Word() != "denied" || !v.CreateAgain() || v.Doubt != (revision == "ffffffffffff") || !strings.Contains(inject.Denial(v.Judged), "only the record of its injection") {
						t.Errorf("%s, %s, records alone: %s: %v", name, mode, v.Word(), v.Judged)
					}
				}
			}
		}
	}
}

// TestDecidedAgainst checks that a template that the mutating webhook decided to leave out does not
// count as a missing call, even if only several rounds show it. The mode decides, and the reason is
// reported.
func TestDecidedAgainst(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: agent}\nspec:\n  default: true\n"
	const pod = `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}`
	grow := "  forEachContainer: [{add: {env: [{name: \"A${container.env.size()}\", value: x}]}}]\n"
	huge := "  pod: {spec: {containers: [{name: agent, image: a, args: [\"" + strings.Repeat("x", 4<<20) + "\"]}]}}\n"
	for name, template := range map[string]string{"never settles": head + grow, "too large": head + huge} {
		injector := parsed(t, template)
		v := mustJudge(t, inject.NewJudge(injector, nil, true), injectedBy(t, injector, pod))
		if v.Word() != "warned" || v.CreateAgain() || !strings.Contains(v.Judged[0].Message, " additions") {
			t.Errorf("%s: %s: %v", name, v.Word(), v.Judged[0].String())
		}
	}
}

// TestSupersededExcuse checks that a superseded set excuses what it injected, but nothing that it
// did not know.
func TestSupersededExcuse(t *testing.T) {
	t.Parallel()
	const plain = `{"metadata":{"name":"web","annotations":{"pillion.dev/templates":"+new"}},"spec":{"containers":[{"name":"web","image":"web"}]}}`
	const base = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: base}
spec: {required: true, pod: {spec: {containers: [{name: base, image: "base:1"}]}}, validate: {protect: [image]}}
`
	with := func(spec string) string {
		return base + "---\napiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: new}\nspec:\n" + spec +
			"  pod: {spec: {containers: [{name: new, image: \"new:1\"}]}}\n"
	}
	const warn, deny, required = "  validate: {mode: Warn}\n", "  validate: {mode: Deny}\n", "  required: true\n"
	for name, c := range map[string]struct{ before, now, pod, want string }{
		"new, mode Warn":                 {base, with(warn), plain, "allowed"},
		"new, mode Deny":                 {base, with(deny), plain, "denied"},
		"new, required":                  {base, with(required), plain, "denied"},
		"required and Warn":              {base, with(required + warn), plain, "allowed"},
		"required now, was asked for":    {with(warn), with(required), plain, "allowed"},
		"required now, was not injected": {with(warn), with(required), strings.Replace(plain, "+new", "-new", 1), "denied"},
		"not required any more":          {with(required), with(warn), plain, "allowed"},
		"gone":                           {with(required), base, plain, "warned"}, // the pod requests a deleted template
	} {
		// Other additions of the older set differ too.
		now := parsed(t, strings.Replace(c.now, "base:1", "base:2", 1))
		before := parsed(t, c.before)
		v := mustJudge(t, inject.NewJudge(now, []*inject.Injector{before}, true), injectedBy(t, before, c.pod))
		if c.want == "warned" {
			v = mustJudge(t, inject.NewJudge(parsed(t, c.now), []*inject.Injector{before}, true), injectedBy(t, before, c.pod))
		}
		if v.Word() != c.want || v.Denied && (v.Doubt || v.Judged[0].Template != "new") {
			t.Errorf("%s: %s, want %s: %v", name, word(v), c.want, v.Judged)
		}
	}
}

// TestJudgeTricks checks pods that look correct but are not.
func TestJudgeTricks(t *testing.T) {
	t.Parallel()
	const template = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
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
kind: ClusterSidecarTemplate
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
		"a token of another account":   {`{"name":"conf","mountPath":"/conf"}`, `{"name":"conf","mountPath":"/conf"},{"name":"kube-api-access-evil","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}`},
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
	// None of these is a value that Kubernetes sets.
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

// TestRequiredForEachIsNotEscaped checks that an app container cannot escape a required template by
// the name and image of another template's container.
func TestRequiredForEachIsNotEscaped(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("t", []byte(`apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: shell}
spec: {default: true, pod: {spec: {containers: [{name: shell, image: "busybox:1"}]}}}
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
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

// TestManyAnnotations checks that findings beyond the limit are not computed, and that findings
// that deny are among the first.
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
