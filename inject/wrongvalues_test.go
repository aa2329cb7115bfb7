// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestAllWrongValues checks that a decision and the findings are about all wrong values of a pod,
// not only about the first one.
func TestAllWrongValues(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t, `validate: {mode: Deny}, params: [{name: level, default: a, enum: [a, b]}, {name: "n", type: integer, default: 1}, {name: team, default: x, pattern: "[a-z]"},
		{name: ok, default: "y"}, {name: none}], pod: {spec: {containers: [{name: s0, image: "${params.level}${params.team}${params.ok}${params.none}${string(params.n)}"}]}}`)
	req := inject.Request{
		Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Annotations: map[string]string{"t0.pillion.dev/team": "1"}},
		Object: []byte(`{"metadata":{"annotations":{"t0.pillion.dev/level":"c","t0.pillion.dev/n":"many"}},"spec":{"containers":[{"name":"app"}]}}`),
	}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	d := &r.Decisions[0]
	v, err := inject.NewJudge(injector, nil, true).Judge(req)
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for i := range v.Judged {
		found += v.Judged[i].String() + "\n"
	}
	for _, want := range []string{"t0.pillion.dev/level", "t0.pillion.dev/n is", "t0.pillion.dev/team", "parameter none has no value"} {
		if d.Code != inject.CodeInvalidParameter || strings.Count(d.Message, want) != 1 {
			t.Errorf("%s: want one %s in %s", d.Code, want, d.Message)
		}
		if !strings.Contains(found, want) {
			t.Errorf("want %s in the findings %s", want, found)
		}
	}
	if len(d.Obstacles) != 4 || !v.Denied {
		t.Errorf("%v, denied %t", d.Obstacles, v.Denied)
	}
}

// TestWrongValuesOfProducts checks that a decision and the findings are about all wrong values of
// annotations of other products, each with its own key.
func TestWrongValuesOfProducts(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t, `validate: {mode: Deny}, params: [{name: s, prefix: example.com/s-, items: {type: integer}}, {name: l, type: list, annotation: example.com/l, items: {pattern: "[a-z]+"}, default: ""},
		{name: m, type: map, annotation: example.com/m, default: ""}, {name: j, type: json, annotation: example.com/j, default: "{}"}], pod: {spec: {containers: [{name: s0, image: x}]}}`)
	req := inject.Request{
		Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Annotations: map[string]string{"example.com/s-c": "x", "example.com/s-a": "1"}},
		Object: []byte(`{"metadata":{"annotations":{"example.com/s-a":"x","example.com/s-b":"y","example.com/l":"a,1","example.com/m":"a","example.com/j":"a: *b"}},"spec":{"containers":[{"name":"app"}]}}`),
	}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	v, err := inject.NewJudge(injector, nil, true).Judge(req)
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for i := range v.Judged {
		found += v.Judged[i].String() + "\n"
	}
	d := &r.Decisions[0]
	for _, want := range []string{"pod's annotation example.com/s-a is", "example.com/s-b is", "namespace's annotation example.com/s-c is", "example.com/l has", "example.com/m has", "example.com/j is"} {
		if d.Code != inject.CodeInvalidParameter || strings.Count(d.Message, want) != 1 || !strings.Contains(found, want) {
			t.Errorf("%s: want one %s in %s and in the findings %s", d.Code, want, d.Message, found)
		}
	}
	if !v.Denied {
		t.Error("the pod is not denied")
	}
}

// TestAddedAnnotations checks that a template sees an annotation of another product that a later
// template adds, so that a second run adds nothing.
func TestAddedAnnotations(t *testing.T) {
	t.Parallel()
	for _, reads := range []string{`{name: p, annotation: example.com/p-a, default: none}`, `{name: p, prefix: example.com/p-}`} {
		use := "params.p"
		if strings.Contains(reads, "prefix") {
			use = "params.p[?'a'].orValue('none')"
		}
		injector := withSpecs(t, `params: [`+reads+`], match: {condition: "`+use+` == '1'"}, pod: {metadata: {annotations: {seen: "yes"}}}`,
			`pod: {metadata: {annotations: {example.com/p-a: "1"}}}`)
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: []byte(`{"spec":{"containers":[{"name":"app"}]}}`)}
		_, _ = checkInvariants(t, injector, req)
	}
}
