// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestConstructsGrowWithThePod is TestWorkGrowsWithThePod for constructs that compare what a template
// has with lists of the pod: eight times as many items take about eight times as much work.
func TestConstructsGrowWithThePod(t *testing.T) {
	const apps = `"containers":[{"name":"app"},{"name":"other"}]`
	for name, row := range map[string]struct{ spec, pod, item string }{ // ITEMS in the pod are many items; %[1]d is their number
		"volumes of the pod": {
			`forEachContainer: [{add: {volumeMounts: [{name: "${'mine'}", mountPath: /mine}]}}]`,
			`{"spec":{` + apps + `,"volumes":[ITEMS,{"name":"mine","emptyDir":{}}]}}`, `{"name":"v%[1]d","emptyDir":{}}`,
		},
		"mounts of a volume of the pod": {
			`forEachContainer: [{add: {volumeMounts: [{name: "${'mine'}", mountPath: /mine}]}}]`,
			`{"spec":{"containers":[{"name":"app","volumeMounts":[ITEMS]}],"volumes":[{"name":"mine","emptyDir":{}}]}}`, `{"name":"mine","mountPath":"/v%[1]d"}`,
		},
		"variables that a container has": {
			`forEachContainer: [{add: {env: [{name: A, value: a, "${ifSet}": {append: B}}, {name: C, value: c, "${ifSet}": conflict}]}}]`,
			`{"spec":{"containers":[{"name":"app","env":[ITEMS,{"name":"A","value":"mine"}]}]}}`, `{"name":"V%[1]d","value":"x"}`,
		},
		"words of a variable": {
			`forEachContainer: [{add: {env: [{name: A, value: a, "${ifSet}": {append: B}}]}}]`,
			`{"spec":{"containers":[{"name":"app","env":[{"name":"A","value":"ITEMS"}]}]}}`, `word%[1]d`,
		},
		"names like those of a prefix": {
			`params: [{name: s, prefix: x.example/secret-, maxItems: 1000}], forEachContainer: [{add: {env: [{name: A, value: "${params.s.map(k, k).join(',')}"}]}}]`,
			`{"metadata":{"annotations":{ITEMS}},"spec":{` + apps + `}}`, `"x.example/Secret-%[1]d":"v"`,
		},
		"owners of generated containers": {
			`params: [{name: l, type: list, default: "a,b,c"}], pod: {spec: {containers: [{"${forEach}": {m: "params.l"}, name: "c-${m}", image: i, ports: [{containerPort: 80}]}]}}`,
			`{"metadata":{"annotations":{ITEMS}},"spec":{` + apps + `}}`, `"x%[1]d.pillion.dev/injected":""`,
		},
		"ports of the app": {
			`pod: {spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}, {containerPort: 81}, {containerPort: 82}]}]}}`,
			`{"spec":{"containers":[{"name":"app","ports":[ITEMS]}]}}`, `{"containerPort":1%[1]d}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			injector := withSpecs(t, row.spec)
			work := func(n int) float64 {
				req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}}
				req.Object = []byte(strings.Replace(row.pod, "ITEMS", list(n, row.item), 1))
				return cpuOf(t, func() error {
					r, err := injector.Inject(req)
					if err == nil && r.Decisions[0].Code != inject.CodeInjected {
						t.Fatal(r.Decisions[0])
					}
					if err == nil {
						_, err = inject.NewJudge(injector, nil, true).Judge(req)
					}
					return err
				}).Seconds()
			}
			const n, times, most = 1000, 8, 20
			for tries := 4; ; tries-- { // on a busy machine, the larger pod has more cache misses
				few, many := work(n), work(times*n)
				t.Logf("%.1f times as long", many/few)
				if many <= most*few {
					break
				}
				if tries == 0 {
					t.Fatalf("%d times as many take %.1f times as long", times, many/few)
				}
			}
		})
	}
}

// TestContainersAroundPlacement checks that placing containers next to one of the pod takes no time that
// grows with the product of both numbers.
func TestContainersAroundPlacement(t *testing.T) {
	injector := withSpecs(t, `placement: {containers: {after: last}}, params: [{name: "n", type: integer, default: "1"}],
		pod: {spec: {containers: [{"${forEach}": {m: "lists.range(params.n)"}, name: "t-${string(m)}", image: i}]}}`)
	work := func(pods int, n string) float64 {
		req := inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(`{"metadata":{"annotations":{"t0.pillion.dev/n":"` + n + `"}},"spec":{"containers":[` + list(pods, `{"name":"c%[1]d"}`) + `,{"name":"last"}]}}`)}
		return cpuOf(t, func() error {
			r, err := injector.Inject(req)
			if err == nil && r.Decisions[0].Code != inject.CodeInjected {
				t.Fatal(r.Decisions[0])
			}
			return err
		}).Seconds()
	}
	if few, many := work(60, "12"), work(480, "96"); many > 24*few {
		t.Errorf("8 times as many take %.1f times as long", many/few)
	}
}
