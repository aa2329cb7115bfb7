// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recorder records that a check failed.
type recorder struct {
	testing.TB

	base   *base // what load returns
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Error(...any)          { r.failed = true }
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatal(...any)          { r.failed = true; runtime.Goexit() }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; runtime.Goexit() }

// fails reports whether the check fails, or panics, which is a failure too.
func (r *recorder) fails(check func(testing.TB)) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { r.failed = recover() != nil || r.failed }()
		check(r)
	}()
	<-done
	return r.failed
}

// mutant is a change of one place of a document.
type mutant struct {
	what     string
	document []byte
}

// mutantsOf removes each field and each item of the object once, and gives each value another one.
func mutantsOf(t *testing.T, object any) (all []mutant) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	take := func(what string) {
		document, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, mutant{what, document})
	}
	var walk func(path string, value any, set func(any))
	walk = func(path string, value any, set func(any)) {
		defer set(value)
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				inner := v[key]
				delete(v, key)
				take("without " + path + "/" + key)
				v[key] = inner
				walk(path+"/"+key, inner, func(other any) { v[key] = other })
			}
		case []any:
			for k, item := range v {
				set(slices.Concat(v[:k], v[k+1:]))
				take(fmt.Sprintf("without %s/%d", path, k))
				set(v)
				walk(fmt.Sprintf("%s/%d", path, k), item, func(other any) { v[k] = other })
			}
		case string:
			set(v + "x")
			take("another " + path)
		case float64:
			set(v + 1)
			take("another " + path)
		case bool:
			set(!v)
			take("another " + path)
		}
	}
	walk("", whole, func(any) {})
	return all
}

// noSurvivors checks that the check fails with each change of the object.
func noSurvivors[T any](t *testing.T, object *T, check func(testing.TB, *T)) {
	t.Helper()
	for _, m := range mutantsOf(t, object) {
		changed := new(T)
		if json.Unmarshal(m.document, changed) != nil || reflect.DeepEqual(changed, object) {
			continue
		}
		if why := meaningless(m.what); why == "" && !(&recorder{TB: t}).fails(func(r testing.TB) { check(r, changed) }) {
			t.Errorf("%T: no test fails %s", object, m.what)
		}
	}
}

// meaningless is the reason why a change does not have to be noticed.
func meaningless(what string) string {
	_, path, _ := strings.Cut(what, " ")
	switch {
	case path == "/kind", path == "/apiVersion":
		return "the test decodes by them"
	case path == "/description":
		return "is for people"
	case strings.HasSuffix(path, "/protocol"):
		return "is the default"
	case strings.HasPrefix(path, "/status"):
		return "is the API server's"
	}
	return ""
}

// TestMutants checks that for every change of the base, a test of this package fails.
func TestMutants(t *testing.T) {
	checks := []func(testing.TB){
		checkNames, checkRBAC, checkServiceReachesDeployment, checkArguments, checkMounts, checkProbes, checkRestricted, checkAvailability, checkReplica,
		checkEntries, checkSelectors, checkMatchConditionNeverErrs,
	}
	for _, check := range checks {
		if r := (&recorder{TB: t, base: load(t)}); r.fails(check) {
			t.Fatal("a test fails without a change")
		}
	}
	n := 0
	for id, object := range load(t).targets() {
		for _, m := range mutantsOf(t, object) {
			b := load(t)
			target := b.targets()[id]
			reflect.ValueOf(target).Elem().SetZero()
			if json.Unmarshal(m.document, target) != nil || same(target, object) || meaningless(m.what) != "" {
				continue
			}
			n++
			if !slices.ContainsFunc(checks, (&recorder{TB: t, base: b}).fails) {
				t.Errorf("%s: no test fails %s", id, m.what)
			}
		}
	}
	t.Logf("%d changes", n)
}

func same(a, b metav1.Object) bool { return reflect.DeepEqual(a, b) }
