// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// startSpan makes the request part of its caller's trace. An API server with tracing
// sends the trace in the header traceparent.
func (h *Handler) startSpan(e *exchange, r *http.Request) {
	if h.Tracer == nil {
		return
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	_, span := h.Tracer.Start(ctx, "webhook", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(e.start))
	if span.IsRecording() {
		e.span = span
	}
}

// endSpan records the outcome of the request, in names and numbers.
func (e *exchange) endSpan() {
	if e.span == nil {
		return
	}
	e.span.SetName(e.endpoint.name)
	attrs := []attribute.KeyValue{
		attribute.String("pillion.webhook", e.endpoint.name),
		attribute.String("pillion.decision", e.decision()),
		attribute.Int("http.response.status_code", e.status()),
	}
	if e.request != nil {
		attrs = append(attrs, attribute.String("pillion.uid", strings.Clone(clipLine(e.request.UID, maxName))),
			attribute.String("k8s.namespace.name", strings.Clone(clipLine(e.request.Namespace, maxName)))) // the request's memory is reused
	}
	count := map[string]int{}
	for _, d := range e.decisions() {
		count["pillion.decisions."+string(d.Code)]++
	}
	for _, f := range e.findings() {
		count["pillion.findings."+string(f.Code)]++
	}
	for name, n := range count {
		attrs = append(attrs, attribute.Int(name, n))
	}
	e.span.SetAttributes(attrs...)
	if e.status() >= http.StatusInternalServerError {
		e.span.SetStatus(codes.Error, "")
	}
	e.span.End()
}
