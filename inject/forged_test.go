// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// TestForgedBeside checks that the true record of one template proves nothing about another one
// with the same container.
func TestForgedBeside(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t,
		`required: true, validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: k, image: s, args: [secure]}]}}`,
		`order: 1, validate: {mode: Warn, protect: [image]}, pod: {spec: {volumes: [{name: v, configMap: {name: "c${string(size(pod.spec.containers))}"}}], containers: [{name: k, image: s}]}}`)
	all := injector.Set().Templates
	for _, record := range []string{"", `"t0.pillion.dev/injected":"zzz",`, `"t0.pillion.dev/injected":"` + all[0].Revision + `",`} {
		for _, volume := range []string{"c1", "c2", "c3"} {
			pod := fmt.Sprintf(`{"metadata":{"annotations":{%s"t1.pillion.dev/injected":%q}},"spec":{"containers":[{"name":"app","image":"a"},`+
				`{"name":"k","image":"s","args":["secure"],"command":["sleep"]}],"volumes":[{"name":"v","configMap":{"name":%q}}]}}`, record, all[1].Revision, volume)
			v := mustJudge(t, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", OptedIn: true, Namespace: templates.Namespace{Name: "shop"}, Object: []byte(pod)})
			if !v.Denied {
				t.Errorf("with the record %s and the volume %s, a command in a protected container passes: %v", record, volume, v.Judged)
			}
		}
	}
}

// TestForgedContainer checks that an annotation cannot hide a container from the condition of a
// required template.
func TestForgedContainer(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t,
		`required: true, match: {condition: "pod.spec.containers.exists(c, c.image.startsWith('legacy/'))"}, pod: {spec: {containers: [{name: guard, image: g}]}}`,
		`pod: {spec: {containers: [{name: plain, image: p}]}}`,
		`params: [{name: v, type: string, default: "1"}], pod: {spec: {containers: [{name: computed, image: "c:${params.v}"}]}}`)
	for _, name := range []string{"app", "plain", "computed", "guard"} {
		for _, annotation := range []string{"injected", "customize"} {
			var all []string
			for i := range 3 {
				all = append(all, fmt.Sprintf(`"t%d.pillion.dev/%s":"true"`, i, annotation))
			}
			pod := fmt.Sprintf(`{"metadata":{"annotations":{%s}},"spec":{"containers":[{"name":"web","image":"a"},{"name":%q,"image":"legacy/x"}]}}`, strings.Join(all, ","), name)
			r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: templates.Namespace{Name: "shop"}, Object: []byte(pod)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Decisions[0].Code == inject.CodeConditionFalse {
				t.Errorf("the condition does not see a container named %s with the annotation %s", name, annotation)
			}
		}
	}
}

// TestForgedCost checks that forged records of all templates cause only a bounded number of
// injections, for any number of sets.
func TestForgedCost(t *testing.T) {
	const specs, sets = 10, 8
	request := func(injector *inject.Injector, volumes int, forged bool) inject.Request {
		var records, items []string
		for _, x := range injector.Set().Templates {
			records = append(records, fmt.Sprintf(`"%s.pillion.dev/customize":"true"`, x.Name))
			if forged {
				records = append(records, fmt.Sprintf(`"%s.pillion.dev/injected":%q`, x.Name, x.Revision))
			}
		}
		for i := range volumes {
			items = append(items, fmt.Sprintf(`{"name":"v%d","emptyDir":{}}`, i))
		}
		pod := fmt.Sprintf(`{"metadata":{"annotations":{%s}},"spec":{"containers":[{"name":"app","image":"a"}],"volumes":[%s]}}`, strings.Join(records, ","), strings.Join(items, ","))
		return inject.Request{Operation: "CREATE", OptedIn: true, Namespace: templates.Namespace{Name: "shop"}, Object: []byte(pod)}
	}
	var all []string
	for i := range specs {
		all = append(all, fmt.Sprintf(`required: true, match: {condition: "pod.spec.volumes.all(v, pod.spec.volumes.exists(w, w.name == v.name))"}, validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: k%d, image: s}]}}`, i))
	}
	injector := withSpecs(t, all...)
	superseded := make([]*inject.Injector, sets-1)
	for i := range superseded {
		superseded[i] = withSpecs(t, all...)
	}
	judge := inject.NewJudge(injector, superseded, true)
	for _, volumes := range []int{10, 100, 20_000} {
		cost := func(forged bool) float64 {
			req := request(injector, volumes, forged)
			return testing.AllocsPerRun(1, func() { mustJudge(t, judge, req) })
		}
		honest, forged := cost(false), cost(true)
		t.Logf("%d volumes: %.0f allocations, with forged records %.0f", volumes, honest, forged)
		if forged > 2*honest+1_000 {
			t.Errorf("%d volumes: forged records cost %.0f allocations, beside %.0f without", volumes, forged, honest)
		}
	}
}
