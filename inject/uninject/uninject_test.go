// SPDX-License-Identifier: Apache-2.0

package uninject_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/uninject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// agentInjector returns an Injector with one template.
func agentInjector(t *testing.T) *inject.Injector {
	t.Helper()
	const agent = "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: agent}\nspec:\n  required: true\n" +
		"  pod: {spec: {initContainers: [{name: agent, image: \"agent:1\", restartPolicy: Always}]}}\n  validate: {protect: [image]}\n"
	found, problems := templates.Parse("agent", []byte(agent))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return inject.New(templates.NewSet(found))
}

// without returns a pod without what must be removed. It removes one path after another.
func without(t *testing.T, pod []byte, removal *uninject.Removal) []byte {
	t.Helper()
	type operation struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	operations := []operation{}
	for _, path := range removal.Paths {
		operations = append(operations, operation{"remove", path})
	}
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	return patchPod(t, pod, string(text))
}

// patchPod returns a pod with a JSON Patch applied.
func patchPod(t *testing.T, pod []byte, text string) []byte {
	t.Helper()
	patch, err := jsonpatch.DecodePatch([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	left, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("%v: %s of %s", err, text, pod)
	}
	return left
}

// isSame reports whether two documents have the same values.
func isSame(t *testing.T, a, b []byte) bool {
	t.Helper()
	var docs [2]any
	for i, text := range [][]byte{a, b} {
		if err := json.Unmarshal(text, &docs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return reflect.DeepEqual(docs[0], docs[1])
}

// TestErrors checks that a pod is not changed if its additions cannot be removed exactly.
func TestErrors(t *testing.T) {
	t.Parallel()
	agent := agentInjector(t)
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

// TestRollout checks that nothing is left of what a rollout has recorded in a pod.
func TestRollout(t *testing.T) {
	t.Parallel()
	agent := agentInjector(t)
	was := []byte(`{"metadata":{"name":"web","annotations":{"a":"b"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`)
	r, err := agent.Inject(inject.Request{Operation: "CREATE", Object: was, OptedIn: true, Namespace: request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true}})
	if err != nil {
		t.Fatal(err)
	}
	pod := strings.Replace(string(r.InjectedJSON()), `"a":"b"`, `"a":"b","agent.pillion.dev/injected-before":"0123456789ab"`, 1)
	req := inject.Request{Operation: "CREATE", Object: []byte(pod), Namespace: request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true}}
	if left, err := uninject.Original(agent, req); err != nil || !isSame(t, left, was) {
		t.Errorf("%v: %s", err, left)
	}
	removal, err := uninject.Pod(agent, req)
	if err != nil || !isSame(t, without(t, req.Object, removal), was) {
		t.Errorf("%v: %+v", err, removal)
	}
}

// TestKeepsOwn checks that a variable that equals a template's stays if its position shows
// that the pod already had it: it precedes others of the pod's own, or one that the template would
// have put before it.
func TestKeepsOwn(t *testing.T) {
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
		req := inject.Request{Operation: "CREATE", Namespace: request.Namespace{Name: "shop"}, Object: []byte(pod)}
		r, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		req.Object = r.InjectedJSON()
		removal, err := uninject.Pod(injector, req)
		if err != nil {
			t.Fatal(err)
		}
		if is := without(t, req.Object, removal); !isSame(t, is, []byte(pod)) {
			t.Errorf("it was\n%s\nand is\n%s", pod, is)
		}
	}
}
