// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/pillion-dev/pillion/inject"
)

// log writes a line for each unusual event, and at level debug one for each
// request. Lines have names, codes and paths, never values from a pod.
func (h *Handler) log(e *exchange, r *http.Request, took time.Duration) {
	if h.Log.Enabled(r.Context(), slog.LevelDebug) {
		h.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", e.routine(took)...)
	}
	decision := e.decision()
	if decision == decidedRejected || decision == decidedShed {
		h.logRejected(e, r, decision)
	}
	if e.withheld != nil {
		h.logWithheld(e, r)
		return
	}
	decisions := e.decisions()
	for i := range decisions {
		d := &decisions[i]
		if !d.Code.Failed() {
			continue
		}
		f := inject.Finding{Template: d.Template, Code: d.Code}
		if len(d.Obstacles) > 0 {
			f.Path = d.Obstacles[0].Path
		}
		h.logDecided(e, r, decidedLeftOut, h.Metrics.ofDecision(d), &f)
	}
	if !e.endpoint.judges {
		decision = decidedWarned
	}
	all := e.findings()
	for i := range all {
		f := &all[i]
		if i > 0 && f.Template == all[i-1].Template && f.Code == all[i-1].Code {
			continue // one path is enough
		}
		h.logDecided(e, r, decision, h.Metrics.ofFinding(e.endpoint.name, f), f)
	}
}

// logRejected logs a request that got an HTTP error.
func (h *Handler) logRejected(e *exchange, r *http.Request, decision string) {
	skipped, ok := h.Metrics.ofRequest(e).lines.take(time.Now())
	if !ok || !h.Log.Enabled(r.Context(), slog.LevelWarn) {
		return
	}
	attrs := append(e.names(), slog.String("decision", decision), slog.Int("status", e.rejected.status),
		slog.String("reason", e.rejected.reason()), slog.String("client", r.RemoteAddr))
	if e.rejected.caller != "" {
		attrs = append(attrs, slog.String("caller", string(e.rejected.caller)))
	}
	h.Log.LogAttrs(r.Context(), slog.LevelWarn, "rejected", append(attrs, skipped...)...)
}

// logDecided logs one finding or failed decision; kind is its metric.
func (h *Handler) logDecided(e *exchange, r *http.Request, decision string, kind *event, f *inject.Finding) {
	if !h.Log.Enabled(r.Context(), slog.LevelInfo) {
		return
	}
	skipped, ok := kind.lines.take(time.Now())
	if !ok {
		return
	}
	attrs := append(e.names(), slog.String("decision", decision), slog.String("template", f.Template), slog.String("reason", string(f.Code)))
	if f.Path != "" {
		attrs = append(attrs, name("path", f.Path))
	}
	h.Log.LogAttrs(r.Context(), slog.LevelInfo, "decided", append(attrs, skipped...)...)
}

// logWithheld logs why a patch is not sent.
func (h *Handler) logWithheld(e *exchange, r *http.Request) {
	if skipped, ok := h.Metrics.withheld.lines.take(time.Now()); ok {
		attrs := append(e.names(), slog.String("reason", e.withheld.Err.Error()), name("path", e.withheld.Path))
		h.Log.LogAttrs(r.Context(), slog.LevelError, "patch withheld", append(attrs, skipped...)...)
	}
}

// panicked logs a panic with its stack.
func (h *Handler) panicked(e *exchange, r *http.Request, why any) {
	h.Metrics.panics.Inc()
	if skipped, ok := h.Metrics.panics.lines.take(time.Now()); ok {
		attrs := append(e.names(), slog.String("panic", fmt.Sprint(why)), slog.String("stack", string(debug.Stack())))
		h.Log.LogAttrs(r.Context(), slog.LevelError, "panic", append(attrs, skipped...)...)
	}
}

const decidedLeftOut = "left_out" // a template; only in the log

// name is an attribute whose value comes from the caller, and may be long.
func name(key, value string) slog.Attr { return slog.String(key, clip(value, maxName)) }

// names identify the request and the pod.
func (e *exchange) names() []slog.Attr {
	attrs := []slog.Attr{slog.String("webhook", e.endpoint.name)}
	if id := e.traceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if e.request == nil {
		return attrs
	}
	attrs = append(attrs, name("uid", e.request.UID), name("namespace", e.request.Namespace))
	switch {
	case e.answer == nil:
	case !e.request.createsPod():
		attrs = append(attrs, name("owner", e.request.Kind.Kind+"/"+e.request.Name))
	default:
		pod := e.answer.pod()
		attrs = append(attrs, name("pod", cmp.Or(pod.Name, pod.GenerateName)), name("owner", pod.Owner))
	}
	return attrs
}

// routine returns everything about a request.
func (e *exchange) routine(took time.Duration) []slog.Attr {
	attrs := append(e.names(), slog.String("decision", e.decision()), slog.Int("status", e.status()), slog.Int64("microseconds", took.Microseconds()))
	if e.request != nil {
		attrs = append(attrs, name("operation", string(e.request.Operation)),
			name("resource", e.request.Resource.Resource), name("subresource", e.request.SubResource))
	}
	if decisions := e.decisions(); decisions != nil {
		codes := make([]slog.Attr, len(decisions))
		for i := range decisions {
			codes[i] = slog.String(decisions[i].Template, string(decisions[i].Code))
		}
		attrs = append(attrs, slog.Any("decisions", slog.GroupValue(codes...)))
	}
	return attrs
}
