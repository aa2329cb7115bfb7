// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
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
	for seed := range uint64(size.Choose(t, 60, 300)) {
		m := newMaker(seed, 2)
		m.plain = true
		s := newSketch(m, 0)
		for range 10 + m.IntN(20) {
			next := s.copy()
			next.change(m)
			problems := next.loadTemplates()
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

// TestValid checks for random sets of templates that a valid pod stays valid: each template is injected or skipped with a
// reason. A second run adds nothing, and the judge has no finding about the result. If another webhook changes the pod
// between two calls, the second call also keeps it valid, and everything that the other webhook left. The clusters have
// different feature gates.
func TestValid(t *testing.T) {
	for _, setting := range settings() {
		t.Run(setting, func(t *testing.T) {
			if setting != "default" {
				t.Cleanup(gates(t, setting))
			}
			seen := coverage{}
			injected, n := 0, size.Choose(t, 60, 250)
			for seed := range n {
				injected += try(t, uint64(seed), uint64(len(setting)), seen)
			}
			t.Logf("%d injected; fields of templates that were: %d", injected, len(seen))
			if injected < n/3 {
				t.Errorf("only %d templates were injected into %d pods", injected, n)
			}
			if !seen[secondCall] {
				t.Error("no second call injects anything")
			}
			for _, way := range wayNames() {
				if n >= 250 && !seen["a parameter: "+way] {
					t.Errorf("no template with this parameter was injected: %s", way)
				}
			}
			for _, part := range partNames() {
				if n >= 250 && !seen[part] {
					t.Errorf("no template with this part was injected: %s", part)
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

// partNames are parts of random templates.
func partNames() []string {
	return []string{
		"kind: SidecarTemplate", "kind: ClusterSidecarTemplate", "replaces: ", "placement: ", "type: number", "type: quantity", "type: duration", fragment.IfSetKey, "required: true", "order: ",
	}
}

// FuzzValid is TestValid for any seed.
func FuzzValid(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed+100)
	}
	f.Add(uint64(4), uint64(46))  // a canary falls back, and the pod customizes one of its containers
	f.Add(uint64(31), uint64(60)) // the data source of a claim has no group
	f.Fuzz(func(t *testing.T, seed, stream uint64) {
		if setting := settings()[stream%uint64(len(settings()))]; setting != "default" {
			t.Cleanup(gates(t, setting))
		}
		try(t, seed, stream, coverage{})
	})
}

// try makes a set of templates and a pod at random, and injects. It returns how many of the templates are injected.
func try(t *testing.T, seed, stream uint64, seen coverage) (injected int) {
	t.Helper()
	m := newMaker(seed, stream)
	g := &reviews.Sets{Rand: m.Rand, Systems: seed%5 == 4}
	sketches := map[string]*sketch{}
	documents := g.Documents(namespace, func(i int) string {
		if m.in(3) {
			return g.Template(i)
		}
		s := m.sketch(i)
		sketches[s.name] = s
		spec := compact(s.document()["spec"])
		return g.Placed(string(spec[1 : len(spec)-1]))
	})
	var all []*templates.Template
	for _, document := range documents {
		found, _ := templates.Parse("t.yaml", []byte(document))
		all = append(all, found...)
	}
	set, _ := templates.Join(templates.NewSet(all)) // without canaries of templates that were not loaded
	if len(set.Templates) == 0 {
		return 0
	}
	podJSON, customized := m.podFor(g, sketches)
	if podJSON == nil {
		return 0
	}
	file := m.in(2)
	if !file {
		var err error
		if podJSON, err = sent(podJSON); err != nil {
			t.Fatal(err)
		}
	}
	c := &checker{t, inject.New(set), customized, documents}
	after, codes := c.inject(podJSON, file)
	for name, code := range codes {
		if code != inject.CodeInjected {
			continue
		}
		injected++
		for _, part := range partNames() {
			if slices.ContainsFunc(documents, func(d string) bool { return strings.Contains(d, "{name: "+name) && strings.Contains(d, part) }) {
				seen[part] = true
			}
		}
		if s := sketches[name]; s != nil {
			seen.add(s.fragment, reflect.TypeFor[corev1.Pod]())
			seen.add(s.each, reflect.TypeFor[corev1.Container]())
			for _, way := range s.ways {
				seen["a parameter: "+way] = true
			}
		}
	}
	for range 3 {
		if c.addsAgain(g, after) {
			seen[secondCall] = true
		}
	}
	if t.Failed() {
		t.Fatalf("seed %d, stream %d\ntemplates: %s\npod: %.6000s", seed, stream, strings.Join(documents, "\n---\n"), podJSON)
	}
	return injected
}

// secondCall is the key of a coverage for pods to which the second call adds, after another webhook.
const secondCall = "a second call"

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
