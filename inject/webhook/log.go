// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/pillion-dev/pillion/inject"
)

// log writes the request's line. It holds names and codes, never what a pod says.
func (h *Handler) log(e *exchange, r *http.Request, took time.Duration) {
	level := slog.LevelInfo
	if e.refused != nil {
		level = slog.LevelWarn
	}
	if !h.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("webhook", e.webhook), slog.Int64("microseconds", took.Microseconds())}
	if e.request != nil {
		attrs = append(attrs, slog.String("uid", e.request.UID), slog.String("namespace", e.request.Namespace))
	}
	if e.result != nil {
		attrs = append(attrs, decided(e)...)
	}
	if e.refused != nil {
		if e.refused.caller != "" {
			attrs = append(attrs, slog.String("caller", string(e.refused.caller)))
		}
		h.Log.LogAttrs(r.Context(), level, "refused", append(attrs, slog.Int("status", e.refused.status),
			slog.String("reason", e.refused.sentence), slog.String("client", r.RemoteAddr))...)
		return
	}
	if e.result == nil {
		attrs = append(attrs, slog.String("operation", string(e.request.Operation)),
			slog.String("resource", e.request.Resource.Resource), slog.String("subresource", e.request.SubResource))
	}
	h.Log.LogAttrs(r.Context(), level, "decided", attrs...)
}

func decided(e *exchange) []slog.Attr {
	result := e.result
	pod := result.Pod.Name
	if pod == "" {
		pod = result.Pod.GenerateName
	}
	attrs := []slog.Attr{slog.String("pod", pod), slog.String("owner", result.Pod.Owner)}
	if e.webhook == webhookAdvise {
		attrs = []slog.Attr{slog.String("owner", e.request.Kind.Kind+"/"+e.request.Name), slog.Int("warnings", len(e.advice))}
	}
	if e.verdict != nil {
		attrs = append(attrs, slog.String("verdict", e.verdict.Word()))
	} else {
		decisions := make([]slog.Attr, len(result.Decisions))
		for i := range result.Decisions {
			d := &result.Decisions[i]
			decisions[i] = slog.String(d.Template, string(d.Code))
		}
		attrs = append(attrs, slog.Any("decisions", slog.GroupValue(decisions...)))
	}
	if found := e.findings(); len(found) > 0 {
		codes := make([]string, len(found))
		for i := range found {
			codes[i] = string(found[i].Code)
			if found[i].Template != "" {
				codes[i] = found[i].Template + ": " + codes[i]
			}
		}
		attrs = append(attrs, slog.Any("findings", codes))
	}
	return attrs
}

func (e *exchange) findings() []inject.Finding {
	switch {
	case e.verdict != nil:
		return e.verdict.Judged
	case e.result != nil:
		return e.result.Findings
	}
	return nil
}
