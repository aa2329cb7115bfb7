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

// logRequest logs each unusual event of a request, and at level debug the request itself. Lines contain names, codes and paths, and
// never values from a pod.
func (h *Handler) logRequest(e *exchange, r *http.Request, took time.Duration) {
	if h.Log.Enabled(r.Context(), slog.LevelDebug) {
		h.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", e.requestAttrs(took)...)
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
	skipped, ok := h.Metrics.ofRequest(e).lines.takeLine(time.Now())
	if !ok || !h.Log.Enabled(r.Context(), slog.LevelWarn) {
		return
	}
	attrs := append(e.nameAttrs(), slog.String("decision", decision), slog.Int("status", e.rejected.status),
		slog.String("reason", e.rejected.redactedSentence()), slog.String("client", r.RemoteAddr))
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
	skipped, ok := kind.lines.takeLine(time.Now())
	if !ok {
		return
	}
	attrs := append(e.nameAttrs(), slog.String("decision", decision), slog.String("template", f.Template), slog.String("reason", string(f.Code)))
	if f.Path != "" {
		attrs = append(attrs, nameAttr("path", f.Path))
	}
	h.Log.LogAttrs(r.Context(), slog.LevelInfo, "decided", append(attrs, skipped...)...)
}

// logWithheld logs why a patch is not sent.
func (h *Handler) logWithheld(e *exchange, r *http.Request) {
	if skipped, ok := h.Metrics.withheld.lines.takeLine(time.Now()); ok {
		attrs := append(e.nameAttrs(), slog.String("reason", e.withheld.Err.Error()), nameAttr("path", e.withheld.Path))
		h.Log.LogAttrs(r.Context(), slog.LevelError, "patch withheld", append(attrs, skipped...)...)
	}
}

// logPanic logs a panic with its stack.
func (h *Handler) logPanic(e *exchange, r *http.Request, why any) {
	h.Metrics.panics.Inc()
	if skipped, ok := h.Metrics.panics.lines.takeLine(time.Now()); ok {
		attrs := append(e.nameAttrs(), slog.String("panic", fmt.Sprint(why)), slog.String("stack", string(debug.Stack())))
		h.Log.LogAttrs(r.Context(), slog.LevelError, "panic", append(attrs, skipped...)...)
	}
}

const decidedLeftOut = "left_out" // a template; only in the log

// nameAttr returns an attribute whose value comes from the caller and may be long.
func nameAttr(key, value string) slog.Attr { return slog.String(key, clipLine(value, maxName)) }

// nameAttrs returns the attributes that identify the request and its pod or workload.
func (e *exchange) nameAttrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("webhook", e.endpoint.name)}
	if id := e.traceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if e.request == nil {
		return attrs
	}
	attrs = append(attrs, nameAttr("uid", e.request.UID), nameAttr("namespace", e.request.Namespace))
	switch {
	case e.answer == nil:
	case !e.request.createsPod():
		attrs = append(attrs, nameAttr("owner", e.request.Kind.Kind+"/"+e.request.Name))
	default:
		pod := e.answer.pod()
		attrs = append(attrs, nameAttr("pod", cmp.Or(pod.Name, pod.GenerateName)), nameAttr("owner", pod.Owner))
	}
	return attrs
}

// requestAttrs returns everything about a request.
func (e *exchange) requestAttrs(took time.Duration) []slog.Attr {
	attrs := append(e.nameAttrs(), slog.String("decision", e.decision()), slog.Int("status", e.status()), slog.Int64("microseconds", took.Microseconds()))
	if e.request != nil {
		attrs = append(attrs, nameAttr("operation", string(e.request.Operation)),
			nameAttr("resource", e.request.Resource.Resource), nameAttr("subresource", e.request.SubResource))
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
