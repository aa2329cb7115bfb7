// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestLeftOut checks that a policy excludes a pod by the template's condition if and only if the
// engine does. It combines valid and invalid parameters with conditions that read or might read
// them.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	env, seen := environment(t), map[inject.Code]int{}
	for _, condition := range []string{
		`params.a != 'out'`, `params.b != 'out'`, `pod.metadata.labels[?'tier'].orValue(params.a) != 'out'`,
		`pod.metadata.labels[?'tier'].orValue(params.b) != 'out'`, `has(pod.spec.hostname) || params.b == 'in'`,
		`params.a == 'in' && params.b == 'in'`, `ns.labels[?'tier'].orValue('out') != 'out'`, `has(params.a) && params.b == 'out'`,
	} {
		tmpl := parse(t, fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t}, spec: {
			required: true, match: {condition: %q}, params: [{name: a, default: in, enum: [in, out]}, {name: b, default: in, enum: [in, out]}],
			pod: {spec: {containers: [{name: t, image: "t:1"}]}}}}`, condition))
		set := templates.NewSet([]*templates.Template{tmpl})
		injector, b := inject.New(set), &builder{set: set, t: tmpl}
		b.matchConditions()
		b.declareInputs(false)
		b.leftOut()
		for _, first := range []string{"in", "out", "wrong"} {
			for _, second := range []string{"in", "out", "wrong"} {
				for _, tier := range []string{"in", "out"} {
					pod := fmt.Sprintf(`{"metadata":{"labels":{"tier":%q},"annotations":{"t.pillion.dev/a":%q,"t.pillion.dev/b":%q}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`, tier, first, second)
					ns := request.Namespace{Name: "shop", Known: true}
					result, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: ns, Object: []byte(pod)})
					if err != nil {
						t.Fatal(err)
					}
					code := result.Decisions[0].Code
					seen[code]++
					w := newWorld(t, env, pod, ns)
					w.declare(t, b.variables)
					got, err := w.eval(t, "variables.leftOut")
					if err != nil || (got == types.True) != (code == inject.CodeConditionFalse) {
						t.Errorf("%s with a=%s, b=%s, tier=%s: left out: %v (%v), and the engine's code is %s", condition, first, second, tier, got, err, code)
					}
				}
			}
		}
	}
	for _, code := range []inject.Code{inject.CodeConditionFalse, inject.CodeInvalidParameter, inject.CodeInjected} {
		if seen[code] == 0 {
			t.Errorf("no pod is %s: %v", code, seen)
		}
	}
}
