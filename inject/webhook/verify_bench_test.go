// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// BenchmarkVerify measures what the check of each patch adds to its request. It writes the same
// patch with and without the check, alternately, and compares the difference with the time of the
// whole handler.
func BenchmarkVerify(b *testing.B) {
	for name, texts := range map[string][]string{"one template": sampleTemplates(1, false), "two with CEL": sampleTemplates(2, true)} {
		b.Run(name, func(b *testing.B) {
			e := newEdge(load(b, texts...))
			e.Log = discard()
			pod := samplePod(map[string]string{"a": "b"})
			whole := again(b, e.Handler, sampleBody(pod))
			result, err := e.Injector().Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: pod})
			if err != nil {
				b.Fatal(err)
			}
			var with, without, handler time.Duration
			var patch []byte
			var verifier jsontree.Verifier
			const times = 100
			timed := func(run func()) time.Duration {
				began := time.Now()
				for range times {
					run()
				}
				return time.Since(began)
			}
			for b.Loop() {
				handler += timed(whole)
				with += timed(func() { patch, err = result.AppendVerified(patch[:0], &verifier) })
				without += timed(func() { patch = result.AppendPatch(patch[:0], "") })
			}
			if err != nil {
				b.Fatal(err)
			}
			n := float64(b.N) * times
			b.ReportMetric(float64(handler)/n, "handler-ns")
			b.ReportMetric(float64(with-without)/n, "check-ns")
			b.ReportMetric(100*float64(with-without)/float64(handler), "check-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}
