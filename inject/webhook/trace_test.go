// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
)

func traced(t testing.TB, ratio float64) (*edge, *tracetest.InMemoryExporter) {
	t.Helper()
	e, spans := newEdge(load(t, sidecar)), tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))))
	e.Tracer = provider.Tracer("test")
	return e, spans
}

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
)

// TestTrace checks that a request belongs to the trace of the API server that sent it. The API
// server also decides whether the trace is sampled.
func TestTrace(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		parent string
		ratio  float64
		spans  int
		trace  string
	}{
		{"00-" + traceID + "-" + spanID + "-01", 0, 1, traceID},
		{"00-" + traceID + "-" + spanID + "-00", 1, 0, ""},
		{"", 0, 0, ""},
		{"", 1, 1, ""},
		{"00-nonsense", 1, 1, ""},
		{"00-nonsense", 0, 0, ""},
	} {
		e, spans := traced(t, row.ratio)
		r := post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod)))
		if row.parent != "" {
			r.Header.Set("Traceparent", row.parent)
		}
		if w := e.answer(r); w.Code != http.StatusOK {
			t.Fatal(w.Code)
		}
		all := spans.GetSpans()
		if len(all) != row.spans {
			t.Fatalf("%q and %v: %d spans", row.parent, row.ratio, len(all))
		}
		if row.spans == 0 {
			continue
		}
		if row.trace != "" && (all[0].SpanContext.TraceID().String() != traceID || all[0].Parent.SpanID().String() != spanID || !all[0].Parent.IsRemote()) {
			t.Errorf("%q: the span is of %s, its parent %s", row.parent, all[0].SpanContext.TraceID(), all[0].Parent.SpanID())
		}
		if row.trace == "" && all[0].Parent.IsValid() {
			t.Errorf("%q: the span has a parent", row.parent)
		}
	}
}

// TestTraceTells checks that a span has the outcome of the request, and no content of the pod.
func TestTraceTells(t *testing.T) {
	t.Parallel()
	e, spans := traced(t, 1)
	e.Log = discard()
	tell := func() string {
		defer spans.Reset()
		webhook.Spoil(e.Handler) // spans are kept longer than the memory of the request
		s := spans.GetSpans()[0]
		var attributes []string
		for _, a := range s.Attributes {
			attributes = append(attributes, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
		}
		slices.Sort(attributes)
		if s.Status.Code == codes.Error {
			attributes = append(attributes, "error")
		}
		return s.Name + " " + strings.Join(attributes, " ")
	}
	wants := func(want string) {
		t.Helper()
		if got := tell(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	const uid = "k8s.namespace.name=shop pillion.decision="
	e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
	wants("mutate http.response.status_code=200 " + uid + "injected pillion.decisions.injected=1 pillion.uid=705ab4f5-6393-11e8-b7cc-42010a800002 pillion.webhook=mutate")
	e.answer(post(t, webhook.PathValidate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
	wants("validate http.response.status_code=200 " + uid + "denied pillion.findings.not_injected=1 pillion.uid=705ab4f5-6393-11e8-b7cc-42010a800002 pillion.webhook=validate")
	e.answer(post(t, "/made/up", nil))
	wants("none http.response.status_code=404 pillion.decision=rejected pillion.webhook=none")
	e.Injector = func() *inject.Injector { panic("broken") }
	e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
	wants("mutate http.response.status_code=500 " + uid + "rejected pillion.uid=705ab4f5-6393-11e8-b7cc-42010a800002 pillion.webhook=mutate error")
}

// TestTraceIsNamed checks that an exemplar in a slow bucket of the histogram names a trace, and
// that the log has the trace's ID.
func TestTraceIsNamed(t *testing.T) {
	t.Parallel()
	e, _ := traced(t, 0)
	r := post(t, webhook.PathMutate, []byte("hello"))
	r.Header.Set("Traceparent", "00-"+traceID+"-"+spanID+"-01")
	e.answer(r)
	if !strings.Contains(e.log.String(), `"trace_id":"`+traceID+`"`) {
		t.Error("the log does not name the trace:", &e.log)
	}
	families, err := e.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var named []*dto.Exemplar
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if b.GetExemplar() != nil {
					named = append(named, b.GetExemplar())
				}
			}
		}
	}
	if len(named) != 1 || named[0].GetLabel()[0].GetValue() != traceID {
		t.Errorf("exemplars %v", named)
	}
}

// BenchmarkTrace measures tracing. It costs nothing if it is off. If it is on, a request that is
// not sampled costs little.
func BenchmarkTrace(b *testing.B) {
	body := sampleBody(samplePod(nil))
	for name, e := range map[string]*edge{"off": newEdge(load(b, sidecar)), "not-kept": nil, "kept": nil} {
		switch name {
		case "not-kept":
			e, _ = traced(b, 0)
		case "kept":
			e = newEdge(load(b, sidecar))
			e.Tracer = sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter())).Tracer("test")
		}
		b.Run("traces="+name, func(b *testing.B) {
			send := again(b, e.Handler, body)
			b.ReportAllocs()
			for b.Loop() {
				send()
			}
		})
	}
}
