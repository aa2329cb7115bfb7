// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/sizetest"
	"github.com/pillion-dev/pillion/templates"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// TestAlone checks that a template that is wrong for every pod is rejected when it is loaded, and also a
// template that is wrong because the API server drops a field. Nearly all templates whose pods the API
// server accepts are loaded.
func TestAlone(t *testing.T) {
	for _, setting := range settings() {
		t.Run(setting, func(t *testing.T) {
			if setting != "default" {
				t.Cleanup(gates(t, setting))
			}
			alone(t, setting == "default")
		})
	}
}

// settings are feature gates of clusters.
func settings() []string {
	return []string{"default", "AllAlpha=true,AllBeta=true", "AllAlpha=false,AllBeta=false"}
}

func alone(t *testing.T, counted bool) {
	t.Helper()
	tried, strict := 0, map[string]int{}
	for seed := range uint64(sizetest.Choose(t, 60, 300)) {
		m := newMaker(seed, 2)
		m.plain = true
		s := newSketch(m, 0)
		for range 10 + m.IntN(20) {
			next := s.copy()
			next.change(m)
			_, problems := next.load()
			_, err := stored(compact(next.alone()))
			tried++
			switch {
			case len(problems) == 0 && (err == nil || strings.Contains(string(compact(next.document())), "${'")): // names a volume that some pods have
				s = next
			case len(problems) == 0:
				t.Errorf("%v\nbut this template is loaded: %s", err, compact(next.document()))
			case err == nil:
				strict[whole(problems[0].Message)]++
			}
		}
	}
	rejected := 0
	for _, message := range sortedKeys(strict) {
		t.Logf("%d loaded by the API server alone: %s", strict[message], message)
		rejected += strict[message]
	}
	if counted && rejected*4 > tried {
		t.Errorf("%d of %d are rejected, and the API server would take them", rejected, tried)
	}
}

// whole is a message without what differs from case to case.
func whole(message string) string {
	if i := strings.LastIndex(message, ": "); i >= 0 {
		message = message[i:]
	}
	return message[:min(len(message), 60)]
}

// TestValid checks that a valid pod stays valid, or is skipped with a reason. A second run adds
// nothing, and the judge has no finding about the result. The clusters have random feature gates.
func TestValid(t *testing.T) {
	for _, setting := range settings() {
		t.Run(setting, func(t *testing.T) {
			if setting != "default" {
				t.Cleanup(gates(t, setting))
			}
			seen := coverage{}
			injected, n := 0, sizetest.Choose(t, 60, 250)
			for seed := range n {
				if try(t, uint64(seed), uint64(len(setting)), seen) == inject.CodeInjected {
					injected++
				}
			}
			t.Logf("%d injected; fields of templates that were: %d", injected, len(seen))
			if injected < n/3 {
				t.Errorf("only %d of %d were injected", injected, n)
			}
			for _, way := range wayNames() {
				if n >= 250 && !seen["a parameter: "+way] {
					t.Errorf("no template with this parameter was injected: %s", way)
				}
			}
		})
	}
}

// wayNames are the kinds of parameters of random templates.
func wayNames() []string {
	return []string{
		"string", "integer", "boolean", "optional", "list", "map", "JSON", "prefix", "list for a list", "JSON for a list", "map for variables", "map for resources",
	}
}

// FuzzValid is TestValid for any seed.
func FuzzValid(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed+100)
	}
	f.Fuzz(func(t *testing.T, seed, stream uint64) { try(t, seed, stream, coverage{}) })
}

// try makes a template and a pod at random, and injects.
func try(t *testing.T, seed, stream uint64, seen coverage) inject.Code {
	t.Helper()
	m := newMaker(seed, stream)
	s := newSketch(m, 0)
	s.scene(m)
	for range 6 + m.IntN(16) {
		next := s.copy()
		next.change(m)
		if _, problems := next.load(); len(problems) == 0 {
			s = next
		}
	}
	s.parametrize(m, m.IntN(5))
	for range m.IntN(4) {
		s.repeat(m)
	}
	template, problems := s.load()
	if len(problems) > 0 {
		return "" // as it was begun
	}
	p := m.pod(15)
	metadata, _ := p["metadata"].(object)
	annotations, _ := metadata["annotations"].(object)
	if annotations != nil {
		for key, value := range s.values {
			annotations[key] = value
		}
	}
	if spec := p["spec"].(object); spec["resources"] != nil && !utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResources) {
		delete(spec, "resources") // it is dropped, so its presence is invisible
	}
	podJSON := compact(p)
	if _, err := stored(podJSON); err != nil {
		return "" // by the annotations
	}
	if m.in(2) {
		var err error
		if podJSON, err = sent(podJSON); err != nil {
			t.Fatal(err)
		}
	}
	customized := annotations["t0.pillion.dev/customize"] != nil
	code := check(t, template, podJSON, customized)
	if code == inject.CodeInjected {
		seen.add(s.fragment, reflect.TypeFor[corev1.Pod]())
		seen.add(s.each, reflect.TypeFor[corev1.Container]())
		for _, way := range s.ways {
			seen["a parameter: "+way] = true
		}
	}
	if t.Failed() {
		t.Fatalf("seed %d\ntemplate: %s\npod: %.3000s", seed, compact(s.document()), podJSON)
	}
	return code
}

// check holds one injection to what must hold for each.
func check(t *testing.T, template *templates.Template, podJSON []byte, customized bool) inject.Code {
	t.Helper()
	injector := inject.New(templates.NewSet([]*templates.Template{template}))
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: templates.Namespace{Name: namespace}, Object: podJSON}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	d := &r.Decisions[0]
	after := patched(t, podJSON, r.Patch())
	kept, err := stored(after)
	if err != nil {
		t.Errorf("%s, and the API server says: %v\npatch: %.2000s", d.Code, err, r.Patch())
		return d.Code
	}
	if d.Code != inject.CodeInjected && d.Code != inject.CodePresent {
		if bytes.Contains([]byte(d.Sentence()), []byte("%!")) || d.Sentence() == "" {
			t.Errorf("%s has no reason: %q", d.Code, d.Sentence())
		}
		return d.Code
	}
	req.Object = kept
	again, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	if again.Adds() {
		t.Errorf("a second run adds %s", again.Patch())
	}
	about, err := schema.AsStored(after) // which lint goes by
	if err != nil {
		t.Fatal(err)
	}
	for _, final := range [][]byte{kept, about} {
		req.Object = final
		verdict, err := inject.NewJudge(injector, nil, true).Judge(req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range verdict.Judged {
			if f := &verdict.Judged[i]; !customized || f.Code != inject.CodeAltered { // which is the user's container
				t.Errorf("the judge says: %s", f)
			}
		}
	}
	return d.Code
}

// coverage is the fields of templates that were injected.
type coverage map[string]bool

func (c coverage) add(v any, t reflect.Type) {
	t = deref(t)
	switch v := v.(type) {
	case object:
		if t.Kind() != reflect.Struct {
			return
		}
		for _, f := range fieldsOf(t) {
			if child, ok := v[f.name]; ok {
				c[fmt.Sprint(f.owner.Name(), ".", f.name)] = true
				c.add(child, f.typ)
			}
		}
	case []any:
		for i := range v {
			if t.Kind() == reflect.Slice {
				c.add(v[i], t.Elem())
			}
		}
	}
}
