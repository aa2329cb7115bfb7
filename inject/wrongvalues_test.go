// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// TestAllWrongValues checks that a decision and the findings are about all wrong values of a pod,
// not only about the first one.
func TestAllWrongValues(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t, `validate: {mode: Deny}, params: [{name: level, default: a, enum: [a, b]}, {name: n, type: integer, default: 1}, {name: team, default: x, pattern: "[a-z]"},
		{name: ok, default: y}, {name: none}], pod: {spec: {containers: [{name: s0, image: "${params.level}${params.team}${params.ok}${params.none}${string(params.n)}"}]}}`)
	req := inject.Request{
		Operation: "CREATE", OptedIn: true, Namespace: templates.Namespace{Name: "shop", Annotations: map[string]string{"t0.pillion.dev/team": "1"}},
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
