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

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// TestJudgeCorpus checks that every captured pod is correct after injection. If any single addition
// is damaged, it must be denied with a finding that names the place.
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

// protected returns templates with everything in their containers protected.
func protected(t *testing.T) *templates.Set {
	var all []*templates.Template
	for _, name := range []string{"log-agent", "proxy", "reader"} {
		text, err := os.ReadFile(filepath.Join("testdata", "templates", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		// Protected fields must not depend on parts of the pod that injection changes.
		text = bytes.ReplaceAll(text, []byte("${string(pod.spec.containers.size())}"), []byte("--prepare"))
		found, problems := templates.Parse(name, text)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		found[0].Spec.Validate = v1alpha1.ValidateRules{Mode: v1alpha1.Deny, Protect: []string{templates.ProtectAll, templates.ResourcesField}}
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
		if !strings.HasSuffix(place, "/name") || strings.Contains(place, "/env/") { // the API server rejects a pod without one
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

func mustJudge(t testing.TB, judge *inject.Judge, req inject.Request) *inject.Verdict {
	t.Helper()
	v, err := judge.Judge(req)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// places returns pointers to all additions in the injected pod: each value in containers and
// volumes, and other additions as a whole.
func places(before, after any, at string) []string {
	var all []string
	switch after := after.(type) {
	case map[string]any:
		before, _ := before.(map[string]any)
		for _, name := range sorted(after) {
			child := at + "/" + jsontree.Escape(name)
			if after[name] == nil {
				continue
			}
			if there := before[name]; there != nil && fmt.Sprint(there) != "[]" || fmt.Sprint(after[name]) == "[]" {
				all = append(all, places(there, after[name], child)...)
			} else {
				all = append(all, reportAdded(after[name], child)...)
			}
		}
	case []any:
		before, _ := before.([]any)
		for i := range after {
			child := at + "/" + strconv.Itoa(i)
			if len(before) > 0 && reviews.Lost(before[0], after[i], "") == "" {
				all = append(all, places(before[0], after[i], child)...)
				before = before[1:]
			} else {
				all = append(all, reportAdded(after[i], child)...)
			}
		}
	}
	return all
}

// reportAdded returns the places of an addition.
func reportAdded(value any, at string) []string {
	names := strings.Split(at, "/")[1:]
	whole := []string{at}
	switch {
	case len(names) < 3: // /metadata/labels, /spec/volumes ...
		return append(whole, each(value, at)...)
	case len(names) == 3 && (names[1] == "volumes" || strings.HasSuffix(names[1], "ontainers")):
		return append(whole, enclosingPath(value, at, 100)...)
	}
	if _, list := value.([]any); list {
		return append(whole, each(value, at)...)
	}
	return whole
}

// each returns the places of the items or members of an addition.
func each(value any, at string) []string {
	var all []string
	for _, child := range enclosingPath(value, at, 1) {
		all = append(all, reportAdded(lookUp(value, strings.TrimPrefix(child, at)), child)...)
	}
	return all
}

// enclosingPath returns the pointers of the values in a value, down to that many levels. It omits values
// that mean the same as absent ones.
func enclosingPath(value any, at string, levels int) []string {
	if levels == 0 {
		return nil
	}
	var all []string
	add := func(name string, child any) {
		if text := fmt.Sprint(child); text != "" && text != "false" && text != "<nil>" && text != "[]" && text != "map[]" {
			all = append(append(all, at+"/"+name), enclosingPath(child, at+"/"+name, levels-1)...)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range sorted(value) {
			add(jsontree.Escape(name), value[name])
		}
	case []any:
		for i := range value {
			add(strconv.Itoa(i), value[i])
		}
	}
	return all
}

// namesPlace reports whether a finding is about a damage: at its place, below it, above it if the
// parent is compared as a whole, or as a missing item of its list.
func namesPlace(f *inject.Finding, place string, was any) bool {
	if strings.Count(f.Path, "/") < 2 {
		return false
	}
	if f.Path == place || strings.HasPrefix(place, f.Path+"/") || strings.HasPrefix(f.Path, place+"/") {
		return true
	}
	if item, ok := strings.CutSuffix(place, "/name"); ok && strings.HasPrefix(f.Path, item+"/") {
		return true // it conflicts under its new name
	}
	list, ok := strings.CutSuffix(f.Path, "/-")
	if !ok || !strings.HasPrefix(place, list) {
		return false
	}
	// The item is missing, or the field that identifies it.
	text, err := json.Marshal(was)
	if err != nil {
		return false
	}
	var expected, item any
	if json.Unmarshal([]byte(f.Expected), &expected) != nil || json.Unmarshal(text, &item) != nil {
		return false
	}
	return reflect.DeepEqual(expected, item) || strings.Contains(string(f.Expected), string(text))
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

// replace returns a copy of doc with the value at the path replaced, or removed if f is nil.
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
