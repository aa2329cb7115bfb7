// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/inject/uninject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestKeepRulesInDocs checks that the page about merging has each rule for places with another value.
func TestKeepRulesInDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../manifests/docs/merging.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[inject.Outcome]string{inject.Stays: "the value stays", inject.Conflicts: "a conflict", inject.Joins: "both are there"}
	for _, r := range inject.KeepRules() {
		if row := fmt.Sprintf("| %s | %s | %s | %s |", r.Place, words[r.OfPod], words[r.OfTemplate], r.Why); !strings.Contains(string(page), row) {
			t.Errorf("manifests/docs/merging.md lacks this row:\n%s", row)
		}
	}
}

// wishes makes fragments and pods that differ at the places that templates can set.
type wishes struct{ *rand.Rand }

func (w wishes) some(values ...any) any { return values[w.IntN(len(values))] }

// maybe returns each of the members in half of the cases.
func (w wishes) maybe(members map[string]any) map[string]any {
	some := map[string]any{}
	for _, name := range sorted(members) {
		if w.IntN(2) == 0 {
			some[name] = members[name]
		}
	}
	return some
}

// pod returns a part of a pod without containers. A template must not have null.
func (w wishes) pod() map[string]any {
	volumes := []any{}
	for _, name := range []string{"one", "two"} {
		volumes = append(volumes, map[string]any{"name": name, "emptyDir": map[string]any{}})
	}
	return map[string]any{
		"metadata": w.maybe(map[string]any{
			"labels": w.maybe(map[string]any{"example.com/a": w.some("1", "2"), "example.com/b": w.some("1", "2")}),
			"annotations": w.maybe(map[string]any{
				"example.com/a": w.some("1", "2"), "kubectl.kubernetes.io/default-container": w.some("app", "other"),
				inject.SafeToEvictLocalVolumes: w.some("one", "two", "one,two", "three"),
			}),
		}),
		"spec": func() map[string]any {
			spec := w.maybe(map[string]any{
				"shareProcessNamespace": w.some(true, false),
				"securityContext":       w.maybe(map[string]any{"fsGroup": w.some(1, 2), "supplementalGroups": []any{w.some(1, 2)}}),
				"tolerations":           []any{map[string]any{"key": "a", "operator": w.some("Exists", "Equal")}},
				"hostAliases":           []any{map[string]any{"ip": "10.0.0.1", "hostnames": []any{w.some("a", "b")}}},
			})
			spec["volumes"] = volumes
			return spec
		}(),
	}
}

// container returns what is in a container of the pod, or is added to it.
func (w wishes) container() map[string]any {
	return w.maybe(map[string]any{
		"env": []any{map[string]any{"name": w.some("A", "B"), "value": w.some("1", "2")}},
		"volumeMounts": []any{func() map[string]any {
			mount := w.maybe(map[string]any{"subPath": w.some("x", "y"), "readOnly": w.some(true, false)})
			mount["name"], mount["mountPath"] = w.some("one", "two"), "/data"
			return mount
		}()},
		"resources": map[string]any{"limits": map[string]any{"cpu": w.some("1", "2")}},
	})
}

// TestCompleteOrNot checks, for random templates and pods, that a template that is injected or present has each of its
// values in the pod, or that another value is reported that a rule lets stay. Who set that value is correct. Nothing differs
// for the injected pod, and it passes the validating webhook.
func TestCompleteOrNot(t *testing.T) {
	t.Parallel()
	w := wishes{rand.New(rand.NewPCG(20261127, 3))}
	seen := map[string]int{}
	for range size.Choose(t, 600, 40_000) {
		var texts []string
		fragments, apps := map[string]map[string]any{}, map[string]map[string]any{}
		for i := range 1 + w.IntN(3) {
			name := fmt.Sprint("t", i)
			fragments[name], apps[name] = w.pod(), w.container()
			spec := map[string]any{
				"default": true, "required": w.IntN(2) == 0, "order": i, "labelDomains": []any{"example.com"},
				"pod": fragments[name], "forEachContainer": []any{map[string]any{"add": apps[name]}},
			}
			if len(apps[name]) == 0 {
				delete(spec, "forEachContainer")
			}
			texts = append(texts, encoded(t, map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": name}, "spec": spec}))
		}
		found, problems := templates.Parse("t", []byte(strings.Join(texts, "\n---\n")))
		if len(problems) > 0 {
			t.Fatal(problems.Error())
		}
		pod, app := w.pod(), w.container()
		app["name"], app["image"] = "app", "app:1"
		pod["spec"].(map[string]any)["containers"] = []any{app}
		injector := inject.New(templates.NewSet(found))
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: []byte(encoded(t, pod))}
		r, after := checkInvariants(t, injector, req)
		final := decodeJSON(t, after)
		for i := range r.Decisions {
			d := &r.Decisions[i]
			seen[string(d.Code)]++
			if !d.Code.Succeeded() {
				continue
			}
			lacks := missing(final, normal(t, fragments[d.Template]), "")
			lacks = append(lacks, missing(at(final, "spec", "containers", 0), normal(t, apps[d.Template]), "/spec/containers/0")...)
			for _, path := range lacks {
				k := slices.IndexFunc(d.Kept, func(k inject.Kept) bool { return k.Path == path || k.Path == strings.TrimSuffix(path, "/value") })
				if k < 0 {
					t.Errorf("%s is %s, and the pod lacks %s", d.Template, d.Code, path)
					continue
				}
				kept := &d.Kept[k]
				seen["kept "+kept.By]++
				if !mayStay(path, d.Template, kept.By) {
					t.Errorf("%s is %s, although %s has %s for %s", d.Template, d.Code, kept.Owner(), kept.Pod, path)
				}
				value := func(in any) string { v, _ := lookup(in, kept.Path); return encoded(t, v) }
				if value(final) != encoded(t, decodeJSON(t, []byte(kept.Pod))) {
					t.Errorf("%s: the pod has %s, and %s is reported", path, value(final), kept.Pod)
				}
				if own, _ := lookup(decodeJSON(t, req.Object), kept.Path); (kept.By == "") != (own != nil) && !sets(t, kept, fragments, apps) {
					t.Errorf("%s is said to be of %s", path, kept.Owner())
				}
			}
			if len(d.Kept) > len(lacks) {
				t.Errorf("%s keeps %v, and the pod lacks only %v", d.Template, d.Kept, lacks)
			}
		}
		req.Object = after
		verdict, err := inject.NewJudge(injector, nil, true).Judge(req)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range verdict.Judged {
			if i := slices.IndexFunc(r.Decisions, func(d inject.Decision) bool { return d.Template == f.Template }); r.Decisions[i].Code.Succeeded() {
				t.Errorf("%s is injected, and then %s", f.Template, f.String())
			}
		}
		if t.Failed() {
			t.Fatalf("%s\n---\n%s", strings.Join(texts, "\n---\n"), encoded(t, pod))
		}
	}
	for _, what := range []string{"injected", "conflict", "kept ", "kept t0"} {
		if seen[what] < 10 {
			t.Errorf("%s: only %d times", what, seen[what])
		}
	}
	t.Log(seen)
}

// mayStay reports whether a template works although there is another value.
func mayStay(path, template, by string) bool {
	switch {
	case path == "/spec/shareProcessNamespace":
		return false
	case strings.HasSuffix(path, "/fsGroup"), strings.HasSuffix(path, "default-container"), strings.HasSuffix(path, "safe-to-evict-local-volumes"):
		return true
	}
	return by == "" || by > template // a later one may have what the pod had before
}

// sets reports whether the template that is said to set a value has it.
func sets(t *testing.T, kept *inject.Kept, fragments, apps map[string]map[string]any) bool {
	t.Helper()
	if kept.By == "" {
		return false
	}
	whole := map[string]any{"spec": map[string]any{"containers": []any{apps[kept.By]}}}
	for _, in := range []any{normal(t, fragments[kept.By]), normal(t, whole)} {
		if v, ok := lookup(in, kept.Path); ok && encoded(t, v) == string(kept.Pod) {
			return true
		}
	}
	// An item of a list, of which the index may differ.
	return strings.Contains(encoded(t, apps[kept.By]), string(kept.Pod))
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// normal returns a value that was encoded and decoded as JSON.
func normal(t *testing.T, v any) any { return decodeJSON(t, []byte(encoded(t, v))) }

// lookup returns the value at a JSON Pointer.
func lookup(v any, path string) (any, bool) {
	for _, name := range strings.Split(path, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch of := v.(type) {
		case map[string]any:
			if v = of[name]; v == nil {
				return nil, false
			}
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(of) {
				return nil, false
			}
			v = of[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// missing returns the places at which a value lacks something of a fragment. It knows the lists of this test.
func missing(pod, fragment any, path string) (all []string) {
	switch fragment := fragment.(type) {
	case map[string]any:
		have, _ := pod.(map[string]any)
		for _, name := range sorted(fragment) {
			all = append(all, missing(have[name], fragment[name], path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))...)
		}
	case []any:
		items, _ := pod.([]any)
		for _, want := range fragment {
			all = append(all, missingItem(items, want, path)...)
		}
	default:
		if strings.HasSuffix(path, "safe-to-evict-local-volumes") {
			have := strings.Split(fmt.Sprint(pod), ",")
			if slices.ContainsFunc(strings.Split(fmt.Sprint(fragment), ","), func(name string) bool { return !slices.Contains(have, name) }) {
				all = append(all, path)
			}
		} else if !reflect.DeepEqual(pod, fragment) && (fragment != false || pod != nil) { // absent readOnly
			all = append(all, path)
		}
	}
	return all
}

func missingItem(items []any, want any, path string) []string {
	of, _ := want.(map[string]any)
	for _, key := range []string{"mountPath", "name"} {
		if of[key] == nil {
			continue
		}
		for i := range items {
			if have := items[i].(map[string]any); reflect.DeepEqual(have[key], of[key]) {
				at := fmt.Sprintf("%s/%d", path, i)
				if len(missing(have, want, at)) > 0 || have["subPath"] != of["subPath"] {
					return []string{at}
				}
				return nil
			}
		}
		return []string{path}
	}
	if names, ok := of["hostnames"].([]any); ok { // an item may have only the rest of them
		for _, item := range items {
			have := item.(map[string]any)
			if have["ip"] == of["ip"] {
				names = slices.DeleteFunc(slices.Clone(names), func(name any) bool { return slices.Contains(have["hostnames"].([]any), name) })
			}
		}
		if len(names) > 0 {
			return []string{path}
		}
		return nil
	}
	if !slices.ContainsFunc(items, func(have any) bool { return reflect.DeepEqual(have, want) }) {
		return []string{path}
	}
	return nil
}

func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			v = v.(map[string]any)[step]
		case int:
			v = v.([]any)[step]
		}
	}
	return v
}

// TestUninjectJoinedAnnotation checks that a list to which several templates add is removed, and that the one of a pod stays.
func TestUninjectJoinedAnnotation(t *testing.T) {
	t.Parallel()
	template := func(name, list string) string {
		return fmt.Sprintf("---\napiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: %s}\n"+
			"spec: {default: true, pod: {metadata: {annotations: {%s: %q}}}}\n", name, inject.SafeToEvictLocalVolumes, list)
	}
	injector := injectorOf(mustParse(t, template("one", "a,b")+template("two", "b,c")))
	for _, own := range []string{"", "a", "a,b", "a,b,c", "b,c", "d", "a,d", "a,b,c,d"} {
		pod := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "y"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "app"}}}}
		if own != "" {
			at(pod, "metadata", "annotations").(map[string]any)[inject.SafeToEvictLocalVolumes] = own
		}
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: []byte(encoded(t, pod))}
		result := mustInject(t, injector, req)
		before, err := uninject.Record(injector, req, result, func(string) (string, string, bool) { return "", "", false })
		if err != nil {
			t.Fatal(err)
		}
		injected := decodeJSON(t, result.InjectedJSON())
		if before != "" {
			at(injected, "metadata", "annotations").(map[string]any)[inject.AnnotationUninject] = before
		}
		req.Object = []byte(encoded(t, injected))
		left, err := uninject.Original(injector, req)
		if err != nil {
			t.Errorf("%s: %v", own, err)
			continue
		}
		if !reflect.DeepEqual(decodeJSON(t, left), normal(t, pod)) {
			t.Errorf("%s: %s is left of %s", own, left, encoded(t, pod))
		}
	}
}
