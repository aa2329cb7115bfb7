// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// podList is a list or a map somewhere in a pod.
type podList struct {
	path []string // names; "[]" is an item of the list before it
	elem reflect.Type
	kind reflect.Kind
}

func (l podList) name() string { return strings.ReplaceAll(strings.Join(l.path, "."), ".[]", "[]") }

// podLists returns all lists and maps of the Go type, including future fields.
func podLists() (all []podList) {
	var walk func(reflect.Type, []string)
	walk = func(t reflect.Type, path []string) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case scalar(t) != 0:
		case t.Kind() == reflect.Struct:
			for _, f := range jsontree.StructFields(t) {
				walk(f.Type, append(slices.Clone(path), f.JSON))
			}
		default:
			all = append(all, podList{path, t.Elem(), t.Kind()})
			walk(t.Elem(), append(slices.Clone(path), "[]"))
		}
	}
	walk(reflect.TypeFor[corev1.Pod](), nil)
	return all
}

// scalar returns the JSON kind of a type, or 0 for an object or a list.
func scalar(t reflect.Type) reflect.Kind {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.FieldsV1]():
		return reflect.String
	case reflect.TypeFor[intstr.IntOrString]():
		return reflect.Int32
	}
	switch k := t.Kind(); k {
	case reflect.Struct, reflect.Map:
		return 0
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return 0
		}
		return reflect.String
	default:
		return k
	}
}

// maxContainers is the number of containers above which templates ignore a pod.
const maxContainers = 500

// grower makes one pod. It draws random values for each list and never for an item, so that
// the pods of a row differ in nothing but the length of its lists.
type grower struct {
	*rand.Rand
	growing []podList
	n       int
}

func (g *grower) one(in int) bool { return g.IntN(in) == 0 }

// pod returns a pod with long lists. It may have containers of the templates' names, and
// annotations that record their injection.
func (g *grower) pod() map[string]any {
	annotations := map[string]any{}
	for _, key := range []string{"greedy.pillion.dev/customize", "other.pillion.dev/customize"} {
		if !g.one(4) {
			annotations[key] = "true"
		}
	}
	if g.one(2) {
		annotations["greedy.pillion.dev/injected"] = "x"
	}
	pod := map[string]any{
		"metadata": map[string]any{"annotations": annotations},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": []string{"app", "greedy-two"}[g.IntN(2)]}}},
	}
	spec := pod["spec"].(map[string]any)
	if !g.one(4) {
		spec["initContainers"] = []any{map[string]any{"name": "greedy", "restartPolicy": "Always"}}
	}
	if g.one(2) {
		spec["hostNetwork"] = true
	}
	slices.SortFunc(g.growing, func(a, b podList) int { return strings.Compare(a.name(), b.name()) }) // lists that are in other lists come after them
	for _, l := range g.growing {
		n := g.n
		if name := l.name(); (name == "spec.containers" || name == "spec.initContainers") && !g.one(8) {
			n = max(1, n*(maxContainers-10)/(2*few*times)) // 490 containers
		}
		g.grow(pod, l, n, g.one(2))
	}
	return pod
}

// grow puts n items into a list. If it is in the items of another list, these are
// the first one's, or spread over all of them.
func (g *grower) grow(pod map[string]any, l podList, n int, spread bool) {
	key, item := g.key(), g.value(l.elem, l.path[len(l.path)-1], 0)
	put := func(in any, i int) any {
		if l.kind == reflect.Map {
			object, _ := in.(map[string]any)
			if object == nil {
				object = map[string]any{}
			}
			object[key(i)] = item(i)
			return object
		}
		list, _ := in.([]any)
		return append(list, item(i))
	}
	for i := range n {
		step := 0
		if spread {
			step = i
		}
		into(pod, l.path, step, func(in any) any { return put(in, i) })
	}
}

// into replaces the value at the path with the result of put.
func into(at map[string]any, path []string, step int, put func(any) any) {
	name := path[0]
	switch {
	case len(path) == 1:
		at[name] = put(at[name])
	case path[1] != "[]":
		next, _ := at[name].(map[string]any)
		if next == nil {
			next = map[string]any{}
			at[name] = next
		}
		into(next, path[1:], step, put)
	case len(path) > 2:
		items, _ := at[name].([]any)
		if len(items) == 0 {
			items = []any{map[string]any{"name": "first"}}
			at[name] = items
		}
		if next, ok := items[step%len(items)].(map[string]any); ok {
			into(next, path[2:], step, put)
		}
	}
}

func (g *grower) key() func(int) string {
	format := []string{"k%d", "example.com/k%d", "greedy.pillion.dev/p%d", "t%d.pillion.dev/p"}[g.IntN(4)]
	return func(i int) string { return fmt.Sprintf(format, i) }
}

// value draws the form of a type's items, and returns the item with a number.
func (g *grower) value(t reflect.Type, name string, depth int) func(int) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch kind := scalar(t); {
	case kind == reflect.Bool:
		return constant(!g.one(3))
	case kind == reflect.String && t == reflect.TypeFor[resource.Quantity]():
		return constant("1")
	case kind == reflect.String:
		return g.text(name)
	case kind != 0 && g.one(2):
		return constant(80)
	case kind != 0:
		return func(i int) any { return i + 1 }
	case t.Kind() == reflect.Struct:
		return g.object(t, depth)
	}
	one := g.value(t.Elem(), name, depth+1)
	if key := g.key(); t.Kind() == reflect.Map {
		return func(i int) any { return map[string]any{key(i): one(i)} }
	}
	return func(i int) any { return []any{one(i)} }
}

func constant(v any) func(int) any { return func(int) any { return v } }

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// text returns a numbered string, or one that templates and the engine look for.
func (g *grower) text(name string) func(int) any {
	known := map[string][]string{
		"name":      {"greedy", "greedy-two", "other", "app", "kube-api-access-x", "pillion-no-token"},
		"mountPath": {tokenPath, "/greedy", "/var/greedy"}, "devicePath": {tokenPath, "/greedy"},
		"key": {"greedy"}, "ip": {"10.0.0.1"}, "operator": {"Exists"}, "restartPolicy": {"Always"}, "protocol": {"TCP"},
		"hostIP": {"0.0.0.0", "10.0.0.1"}, "add": {"SYS_ADMIN"}, "kind": {"ReplicaSet"},
	}[name]
	if len(known) > 0 && g.one(2) {
		return constant(known[g.IntN(len(known))])
	}
	format := map[string][]string{"name": {"n%d", "kube-api-access-%d"}, "mountPath": {"/m/%d"}, "devicePath": {"/m/%d"}, "restartPolicy": {"Always"}}[name]
	if format == nil {
		format = []string{"x%d"}
	}
	chosen := format[g.IntN(len(format))]
	return func(i int) any {
		if !strings.Contains(chosen, "%") {
			return chosen
		}
		return fmt.Sprintf(chosen, i)
	}
}

func (g *grower) object(t reflect.Type, depth int) func(int) any {
	if g.one(10) {
		return func(int) any { return map[string]any{} }
	}
	if own := special(t); own != "" && g.one(2) {
		return func(i int) any {
			var v map[string]any
			if err := json.Unmarshal([]byte(strings.ReplaceAll(own, "%d", fmt.Sprint(i))), &v); err != nil {
				panic(err)
			}
			return v
		}
	}
	type member struct {
		name  string
		value func(int) any
	}
	var members []member
	for _, f := range jsontree.StructFields(t) {
		likely := 12 // an object or a list
		if ft := f.Type; ft.Kind() == reflect.Pointer && scalar(ft.Elem()) != 0 || scalar(ft) != 0 && ft.Kind() != reflect.Pointer {
			likely = 3
		}
		if f.OmitEmpty && !g.one(likely) || depth > 3 {
			continue
		}
		members = append(members, member{f.JSON, g.value(f.Type, f.JSON, depth+1)})
	}
	return func(i int) any {
		v := map[string]any{}
		for _, m := range members {
			v[m.name] = m.value(i)
		}
		return v
	}
}

// special are items that matter to the engine and are not drawn often.
func special(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[corev1.VolumeMount]():
		return `{"name":"kube-api-access-%d","readOnly":true,"mountPath":"` + tokenPath + `"}`
	case reflect.TypeFor[corev1.Volume]():
		return `{"name":"kube-api-access-%d","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}`
	case reflect.TypeFor[corev1.ContainerPort]():
		return `{"containerPort":1%d,"hostPort":1%d}`
	case reflect.TypeFor[corev1.Container]():
		return `{"name":"c%d","restartPolicy":"Always","volumeMounts":[{"name":"v","mountPath":"/v"}]}`
	case reflect.TypeFor[corev1.EnvVar]():
		return `{"name":"E%d","value":"v"}`
	case reflect.TypeFor[metav1.OwnerReference]():
		return `{"kind":"ReplicaSet","name":"r%d","controller":true}`
	}
	return ""
}

// text returns a value as JSON.
func text(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
