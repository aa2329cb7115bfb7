// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/uninject"
	"github.com/pillion-dev/pillion/templates"
	librarytests "github.com/pillion-dev/pillion/templates/library/tests"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestUninjectCorpus checks that uninject restores every captured pod. Values that a pod already
// had exactly as the template has them cannot be distinguished from additions. The result is then
// another pod that becomes the same after injection. No pod contains anything of the shipped
// templates.
func TestUninjectCorpus(t *testing.T) {
	t.Parallel()
	for name, choice := range corpusInjectors(t) {
		shared := 0
		t.Run(name, func(t *testing.T) {
			corpus(t, func(t *testing.T, pod string, req inject.Request) {
				if pod == "forged-evidence" {
					t.Skip("nothing was injected into this pod, whatever it says")
				}
				req.Namespace.Annotations = librarytests.Params()
				if was, is := injectAndRemove(t, choice.forPod(pod), req); was != is {
					shared++
					has := strings.Contains(was, `"prometheus.io/scrape":"true"`) || strings.Contains(was, `"shareProcessNamespace":false`) ||
						strings.Contains(was, `"example.com/logs":"shipped"`)
					if name == "library" || !has {
						t.Errorf("it was\n%s\nand is\n%s", was, is)
					}
				}
			})
		})
		t.Logf("%s: %d pods had something already", name, shared)
	}
}

// injectAndRemove returns the pod before injection, and after injection and its inverse.
func injectAndRemove(t *testing.T, injector *inject.Injector, req inject.Request) (was, is string) {
	t.Helper()
	was = canonical(t, req.Object)
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	req.Object = applyPatch(t, req.Object, r.Patch())
	removal, err := uninject.Pod(injector, req)
	if err != nil {
		t.Fatal(err)
	}
	pod := decodeJSON(t, req.Object)
	for _, path := range removal.Paths {
		pod = replace(pod, strings.Split(path, "/")[1:], nil)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return was, canonical(t, text)
}

// TestUninjectErrors checks that a pod is not changed if its additions cannot be removed exactly.
func TestUninjectErrors(t *testing.T) {
	t.Parallel()
	agent := setOf(t)
	revision := agent.Set().Templates[0].Revision
	for name, c := range map[string]struct{ pod, want string }{
		"not JSON":         {`x`, "is not JSON"},
		"another revision": {`{"metadata":{"annotations":{"agent.pillion.dev/injected":"ffffffffffff"}}}`, "by revision ffffffffffff of the template"},
		"another template": {`{"metadata":{"annotations":{"other.pillion.dev/injected":"ffffffffffff"}}}`, "there is no template of that name"},
		"many other templates": {`{"metadata":{"annotations":{"d.pillion.dev/injected":"f","b.pillion.dev/injected":"f","a.pillion.dev/injected":"f",
			"c.pillion.dev/injected":"f","e.pillion.dev/injected":"f","f.pillion.dev/injected":"f","g.pillion.dev/injected":"f"}}}`, "a was injected, but"},
		"changed since": {`{"metadata":{"annotations":{"agent.pillion.dev/injected":"` + revision + `"}},"spec":{
			"containers":[{"name":"web"}],"initContainers":[{"name":"agent","image":"evil:1"}]}}`, "cannot restore the original: spec.initContainers[0].image differs from what inject writes"},
	} {
		_, err := uninject.Pod(agent, inject.Request{Operation: "CREATE", Object: []byte(c.pod)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := uninject.Pod(agent, inject.Request{Operation: "CREATE", Object: []byte(`{"spec":{"containers":[{"name":"web"}]}}`)})
	if err != nil || len(r.Paths) > 0 || len(r.Templates) > 0 {
		t.Errorf("a pod that was never injected: %v %v", r, err)
	}
}

// TestUninjectRollout checks that nothing is left of what a rollout has recorded in a pod.
func TestUninjectRollout(t *testing.T) {
	t.Parallel()
	agent := setOf(t)
	was := []byte(`{"metadata":{"name":"web","annotations":{"a":"b"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`)
	r, err := agent.Inject(inject.Request{Operation: "CREATE", Object: was, OptedIn: true, Namespace: request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true}})
	if err != nil {
		t.Fatal(err)
	}
	pod := strings.Replace(string(r.InjectedJSON()), `"a":"b"`, `"a":"b","agent.pillion.dev/injected-before":"0123456789ab"`, 1)
	req := inject.Request{Operation: "CREATE", Object: []byte(pod), Namespace: request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true}}
	if left, err := uninject.Original(agent, req); err != nil || canonical(t, left) != canonical(t, was) {
		t.Errorf("%v: %s", err, left)
	}
	removal, err := uninject.Pod(agent, req)
	if err != nil || canonical(t, removeValue(t, req.Object, removal)) != canonical(t, was) {
		t.Errorf("%v: %+v", err, removal)
	}
}

// canonical returns JSON with sorted keys, and without null and empty values.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	out, err := json.Marshal(said(decodeJSON(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func said(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			if v[name] == nil {
				delete(v, name)
				continue
			}
			v[name] = said(v[name])
		}
	case []any:
		for i := range v {
			v[i] = said(v[i])
		}
	}
	return v
}

// TestUninjectKeepsOwn checks that a variable that equals a template's stays if its position shows
// that the pod already had it: it precedes others of the pod's own, or one that the template would
// have put before it.
func TestUninjectKeepsOwn(t *testing.T) {
	t.Parallel()
	set, problems := templates.Parse("t.yaml", []byte(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod: {spec: {containers: [{name: agent, image: x}]}}
  forEachContainer:
  - add: {env: [{name: A, value: "1"}, {name: B, value: "2"}]}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	injector := inject.New(templates.NewSet(set))
	for _, env := range []string{
		`[{"name":"A","value":"1"},{"name":"X","value":"x"}]`,
		`[{"name":"B","value":"2"}]`,
		`[{"name":"X","value":"x"},{"name":"B","value":"2"},{"name":"Y","value":"y"}]`,
	} {
		pod := `{"metadata":{"name":"web"},"spec":{"containers":[{"env":` + env + `,"image":"app","name":"app"}]}}`
		was, is := injectAndRemove(t, injector, inject.Request{Operation: "CREATE", Namespace: shopNamespace(), Object: []byte(pod)})
		if was != is {
			t.Errorf("it was\n%s\nand is\n%s", was, is)
		}
	}
}
