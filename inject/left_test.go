// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// lefts returns what may be left to the webhook, for a pod or a template.
func (w wishes) lefts() map[string]any {
	return map[string]any{
		"metadata": w.maybe(map[string]any{"labels": map[string]any{"example.com/a": w.some("1", "2")}}),
		"spec": w.maybe(map[string]any{
			"imagePullSecrets": []any{map[string]any{"name": w.some("a", "b")}},
			"hostAliases":      []any{map[string]any{"ip": "10.0.0.1", "hostnames": w.some([]any{"a"}, []any{"a", "b"}, []any{"c"})}},
			"tolerations": []any{
				map[string]any{"key": w.some("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready", "spot"), "operator": "Exists", "effect": w.some("NoExecute", "NoSchedule")},
			},
		}),
	}
}

// TestFileAsWebhook checks, for random templates and pods, that a file is decided about as the webhook decides about the pod, and
// that the webhook makes the same pod of both. Injecting the file again adds nothing.
func TestFileAsWebhook(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(size.Choose(t, 600, 20_000)) {
		tryFileAsWebhook(t, wishes{rand.New(rand.NewPCG(seed, 37))}, seen)
		if t.Failed() {
			t.Fatal("seed ", seed)
		}
	}
	for _, what := range []string{"injected", "conflict", "condition_false", "left"} {
		if seen[what] < 20 {
			t.Errorf("%s: only %d times", what, seen[what])
		}
	}
	t.Log(seen)
}

func tryFileAsWebhook(t *testing.T, w wishes, seen map[string]int) {
	t.Helper()
	var texts []string
	count := 2 + w.IntN(2)
	for i := range count {
		spec := map[string]any{"default": true, "order": i, "labelDomains": []any{"example.com"}, "pod": w.lefts()}
		if w.IntN(2) == 0 {
			add := w.maybe(map[string]any{"resources": w.resources(), "ports": w.ports(), "env": []any{map[string]any{"name": "A", "value": w.some("1", "2")}}})
			spec["forEachContainer"] = []any{map[string]any{"add": add}}
		}
		// Only the last one reads what others add. Otherwise the webhook may apply an earlier one first to the file, in which it
		// finds additions of a later one.
		if i == count-1 && w.IntN(2) == 0 {
			spec["match"] = map[string]any{"condition": w.some("has(pod.spec.tolerations)", "has(pod.metadata.labels)", "pod.spec.containers.exists(c, has(c.resources.limits))")}
		}
		texts = append(texts, encoded(t, map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": fmt.Sprint("t", i)}, "spec": spec}))
	}
	found, problems := templates.Parse("t", []byte(strings.Join(texts, "\n---\n")))
	if len(problems) > 0 {
		t.Fatal(problems.Error())
	}
	injector := inject.New(templates.NewSet(found))
	pod := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}
	if w.IntN(2) == 0 {
		pod = w.lefts()
	}
	pod["metadata"].(map[string]any)["name"] = "web"
	spec := pod["spec"].(map[string]any)
	if w.IntN(4) == 0 {
		spec[w.some("tolerations", "imagePullSecrets").(string)] = w.some([]any{}, nil)
	}
	app := w.maybe(map[string]any{"resources": w.resources(), "ports": w.ports()})
	app["name"], app["image"] = "app", "app:1"
	spec["containers"] = []any{app}

	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: []byte(encoded(t, pod)), File: true}
	direct := mustInject(t, injector, req)
	req.Written, req.CopiesLabels = true, w.IntN(2) == 0
	file := mustInject(t, injector, req)
	for i := range direct.Decisions {
		d, written := &direct.Decisions[i], &file.Decisions[i]
		if d.Code != written.Code || d.Message != written.Message {
			t.Errorf("the webhook: %s is %s (%s), in a file %s (%s)", d.Template, d.Code, d.Message, written.Code, written.Message)
		}
		seen[string(d.Code)]++
	}
	if len(file.Patch()) < len(direct.Patch()) {
		seen["left"]++
	}
	if was, is := decodeJSON(t, req.Object), decodeJSON(t, applyPatch(t, req.Object, file.Patch())); encoded(t, is) != encoded(t, decodeJSON(t, file.InjectedJSON())) {
		t.Errorf("the patch of %s gives another file: %s", encoded(t, was), encoded(t, is))
	}
	again := req
	if again.Object = file.InjectedJSON(); mustInject(t, injector, again).Adds() {
		t.Errorf("a second run adds %s", mustInject(t, injector, again).Patch())
	}
	webhook := func(object []byte) []byte {
		return mustInject(t, injector, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: req.Namespace, Object: keptBy(t, object, true)}).InjectedJSON()
	}
	one, other, updated := webhook(req.Object), webhook(file.InjectedJSON()), webhook(applied(t, req.Object, file.InjectedJSON()))
	if ordered(t, decodeJSON(t, one)) != ordered(t, decodeJSON(t, other)) {
		t.Errorf("the pod becomes\n%s\nand the file\n%s", one, other)
	}
	if ordered(t, decodeJSON(t, one)) != ordered(t, decodeJSON(t, updated)) {
		t.Errorf("the pod becomes\n%s\nand the file, if kubectl applies it to the pod template without injection,\n%s", one, updated)
	}
	if t.Failed() {
		t.Errorf("%s\n---\n%s\n---\n%s", strings.Join(texts, "\n---\n"), req.Object, file.InjectedJSON())
	}
}

// ports returns ports with few numbers.
func (w wishes) ports() []any {
	return []any{map[string]any{"containerPort": w.some(80, 81), "protocol": w.some("TCP", "UDP")}}
}

// applied returns what kubectl apply makes of a pod that was applied before, if its file has another content now.
func applied(t *testing.T, before, now []byte) []byte {
	t.Helper()
	meta, err := strategicpatch.NewPatchMetaFromStruct(&corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	stored := keptBy(t, before, true)
	patch, err := strategicpatch.CreateThreeWayMergePatch(before, now, stored, meta, true)
	if err != nil {
		t.Fatal(err)
	}
	result, err := strategicpatch.StrategicMergePatch(stored, patch, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// ordered returns a value as JSON with the items of lists in order.
func ordered(t *testing.T, v any) string {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		var all []string
		for _, name := range sorted(v) {
			all = append(all, fmt.Sprintf("%q:%s", name, ordered(t, v[name])))
		}
		return "{" + strings.Join(all, ",") + "}"
	case []any:
		var all []string
		for i := range v {
			all = append(all, ordered(t, v[i]))
		}
		slices.Sort(all)
		return "[" + strings.Join(all, ",") + "]"
	}
	return encoded(t, v)
}
