// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pillion-dev/pillion/inject"
)

// linesPerSecond bounds what one broken template, or one broken caller, writes:
// lines of the same webhook, template and reason.
const linesPerSecond = 10

// sampler lets so many lines pass and counts the others. Requests may share it; that
// a moment's lines are a few more or less is no harm.
type sampler struct {
	second, lines, skipped atomic.Int64
}

// take says whether to write a line, and in it how many were left out before it.
func (s *sampler) take(now time.Time) (skipped []slog.Attr, ok bool) {
	if second := now.Unix(); s.second.Swap(second) != second {
		s.lines.Store(0)
	}
	if s.lines.Add(1) > linesPerSecond {
		s.skipped.Add(1)
		return nil, false
	}
	if n := s.skipped.Swap(0); n > 0 {
		skipped = []slog.Attr{slog.Int64("skipped", n)}
	}
	return skipped, true
}

// log writes a line for everything that is not routine, and at level debug one for
// every request. They hold names, codes and paths, never what a pod says.
func (h *Handler) log(e *exchange, r *http.Request, took time.Duration) {
	if h.Log.Enabled(r.Context(), slog.LevelDebug) {
		h.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", e.routine(took)...)
	}
	decision := e.decision()
	if decision == decidedRefused || decision == decidedShed {
		h.logRefused(e, r, decision)
	}
	if e.result == nil {
		return
	}
	if e.withheld != nil {
		h.logWithheld(e, r)
		return
	}
	if e.verdict == nil {
		for i := range e.result.Decisions {
			d := &e.result.Decisions[i]
			if !failed(d.Code) {
				continue
			}
			f := inject.Finding{Template: d.Template, Code: d.Code}
			if len(d.Obstacles) > 0 {
				f.Path = d.Obstacles[0].Path
			}
			h.logDecided(e, r, decidedLeftOut, h.Metrics.ofDecision(d), &f)
		}
		decision = decidedWarned
	}
	all := e.findings()
	for i := range all {
		f := &all[i]
		if i > 0 && f.Template == all[i-1].Template && f.Code == all[i-1].Code {
			continue // one place says enough
		}
		h.logDecided(e, r, decision, h.Metrics.ofFinding(e.webhook, f), f)
	}
}

// logRefused tells of a request that got an HTTP error.
func (h *Handler) logRefused(e *exchange, r *http.Request, decision string) {
	skipped, ok := h.Metrics.ofRequest(e).lines.take(time.Now())
	if !ok || !h.Log.Enabled(r.Context(), slog.LevelWarn) {
		return
	}
	attrs := append(e.names(), slog.String("decision", decision), slog.Int("status", e.refused.status),
		slog.String("reason", e.refused.reason()), slog.String("client", r.RemoteAddr))
	if e.refused.caller != "" {
		attrs = append(attrs, slog.String("caller", string(e.refused.caller)))
	}
	h.Log.LogAttrs(r.Context(), slog.LevelWarn, "refused", append(attrs, skipped...)...)
}

// logDecided tells of one thing that is wrong; kind is what it is counted as.
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

// logWithheld tells of a patch that is not sent, and why.
func (h *Handler) logWithheld(e *exchange, r *http.Request) {
	if skipped, ok := h.Metrics.withheld.lines.take(time.Now()); ok {
		attrs := append(e.names(), slog.String("reason", e.withheld.Err.Error()), name("path", e.withheld.Path))
		h.Log.LogAttrs(r.Context(), slog.LevelError, "patch withheld", append(attrs, skipped...)...)
	}
}

// panicked writes where a request ended, and why.
func (h *Handler) panicked(e *exchange, r *http.Request, why any) {
	h.Metrics.panics.Inc()
	if skipped, ok := h.Metrics.panics.lines.take(time.Now()); ok {
		attrs := append(e.names(), slog.String("panic", fmt.Sprint(why)), slog.String("stack", string(debug.Stack())))
		h.Log.LogAttrs(r.Context(), slog.LevelError, "panic", append(attrs, skipped...)...)
	}
}

// failed tells the decisions that somebody has to do something about.
func failed(code inject.Code) bool {
	return code == inject.CodeConflict || code == inject.CodeInvalidParameter || code == inject.CodeRenderFailed
}

// reason is the sentence, up to where it may quote the request.
func (r *refusal) reason() string {
	if r.status != http.StatusBadRequest {
		return r.sentence
	}
	before, _, _ := strings.Cut(r.sentence, ": ")
	return before
}

// name is what a caller may have made as long as it likes.
func name(key, value string) slog.Attr { return slog.String(key, clip(value, maxName)) }

// names say which request, of which pod, this is.
func (e *exchange) names() []slog.Attr {
	attrs := []slog.Attr{slog.String("webhook", e.path())}
	if id := e.traceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if e.request == nil {
		return attrs
	}
	attrs = append(attrs, name("uid", e.request.UID), name("namespace", e.request.Namespace))
	switch {
	case e.result == nil:
	case e.webhook == webhookAdvise:
		attrs = append(attrs, name("owner", e.request.Kind.Kind+"/"+e.request.Name))
	default:
		pod := e.result.Pod.Name
		if pod == "" {
			pod = e.result.Pod.GenerateName
		}
		attrs = append(attrs, name("pod", pod), name("owner", e.result.Pod.Owner))
	}
	return attrs
}

// routine is the whole story of a request.
func (e *exchange) routine(took time.Duration) []slog.Attr {
	attrs := append(e.names(), slog.String("decision", e.decision()), slog.Int("status", e.status()), slog.Int64("microseconds", took.Microseconds()))
	if e.request != nil {
		attrs = append(attrs, name("operation", string(e.request.Operation)),
			name("resource", e.request.Resource.Resource), name("subresource", e.request.SubResource))
	}
	if e.result != nil && e.verdict == nil {
		decisions := make([]slog.Attr, len(e.result.Decisions))
		for i := range e.result.Decisions {
			d := &e.result.Decisions[i]
			decisions[i] = slog.String(d.Template, string(d.Code))
		}
		attrs = append(attrs, slog.Any("decisions", slog.GroupValue(decisions...)))
	}
	return attrs
}
