// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"testing"

	"github.com/pillion-dev/pillion/inject"
)

// BenchmarkConstructs measures what a construct of the format costs for each pod: a container with four
// variables, written in different ways.
func BenchmarkConstructs(b *testing.B) {
	const params = `params: [{name: names, default: "a,b,c,d"}], `
	const set = `{"metadata":{"annotations":{"t0.pillion.dev/names":"e,f,g,h"}},"spec":{"containers":[{"name":"app","image":"a"}]}}`
	const plain = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"a"}]}}`
	side := func(env string) string {
		return params + "pod: {spec: {containers: [{name: side, image: s, env: [" + env + "]}]}}"
	}
	for _, row := range []struct{ name, spec, pod string }{
		{"constant", side(list(4, `{name: "E%d", value: x}`)), plain},
		{"expressions", side(list(4, `{name: "E%d", value: "${ns.name}"}`)), plain},
		{"when", side(list(4, `{name: "E%d", "${when}": "ns.name != 'y'", value: x}`)), plain},
		{"forEach of defaults", side(`{"${forEach}": {m: "params.names.split(',')"}, name: "E${m}", value: x}`), plain},
		{"forEach of an annotation", side(`{"${forEach}": {m: "params.names.split(',')"}, name: "E${m}", value: x}`), set},
		{"forEach of labels", side(`{"${forEach}": {m: "pod.metadata.labels.map(l, l)"}, name: "E${m}", value: x}`), plain},
	} {
		b.Run(row.name, func(b *testing.B) {
			injector, req := withSpecs(b, row.spec), inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(row.pod), Scratch: &inject.Scratch{}}
			b.ReportAllocs()
			for b.Loop() {
				if r, err := injector.Inject(req); err != nil || !r.Adds() {
					b.Fatal(err, r)
				}
			}
		})
	}
}
