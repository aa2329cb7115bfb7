// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook/callers"
	"github.com/pillion-dev/pillion/templates"
)

// The webhooks, beside [webhookAdvise] and [webhookShadow], as metrics and log call them.
const (
	webhookMutate   = "mutate"
	webhookValidate = "validate"
	webhookNone     = "none" // another path
)

// The words for what became of a request, beside those of [inject.Verdict.Word].
const (
	decidedInjected  = "injected"
	decidedUnchanged = "unchanged"
	decidedWithheld  = "withheld" // of the patch
	decidedIgnored   = "ignored"  // it is not about a new pod
	decidedSilent    = "silent"
	decidedWarned    = "warned"
	decidedRefused   = "refused" // with an HTTP error
	decidedShed      = "shed"    // with 429: there are too many
	decidedDoubted   = "doubted"
	decidedLeftOut   = "left_out" // a template, in the log alone

	// In the shadow alone: the pod is as it came.
	decidedWouldInject = "would_inject"
	decidedWouldDeny   = "would_deny"
)

// Metrics counts what the webhooks were asked and what they said. No label's
// value can be made up by who creates pods: templates are the operator's.
//
// A request finds its series in maps that are made when templates load, so that
// it takes no lock and only adds; and a series is there, with 0, before the first event.
type Metrics struct {
	requests, decisions, findings, refused *prometheus.CounterVec

	panics    *event
	withheld  *event
	webhooks  map[string]*webhookSeries
	ways      map[callers.Way]prometheus.Counter
	templates atomic.Pointer[map[string]*templateSeries]
	gone      *event // any template that has no series; it is in no metric
}

// event is something that is counted, and told in the log.
type event struct {
	prometheus.Counter
	lines sampler
}

type webhookSeries struct {
	durations prometheus.Observer
	requests  map[outcome]*event
}

type outcome struct {
	decision string
	status   int
}

type templateSeries struct {
	decisions map[inject.Code]*event
	findings  map[found]*event
}

type found struct {
	webhook string
	code    inject.Code
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	m := &Metrics{
		requests: counters("pillion_webhook_requests_total", "Requests by webhook, what became of them, and HTTP status.",
			"webhook", "decision", "status"),
		decisions: counters("pillion_decisions_total", "Decisions of the mutating webhook by template and reason code; one for each template and pod.",
			"template", "code"),
		findings: counters("pillion_findings_total",
			"What is wrong with final pods (validate) and with what pods ask for (mutate, advise, shadow), by webhook, template and reason code.",
			"webhook", "template", "code"),
		refused: counters("pillion_callers_refused_total", "Requests whose caller was refused with 401, by what was wrong with its credential.",
			"reason"),
		panics:   &event{Counter: counters("pillion_webhook_panics_total", "Requests that ended in a panic and were answered with 500.").WithLabelValues()},
		withheld: &event{Counter: counters("pillion_webhook_patches_withheld_total", "Patches that were not sent because they were not an add to places that do not exist yet.").WithLabelValues()},
		webhooks: map[string]*webhookSeries{},
		ways:     map[callers.Way]prometheus.Counter{},
		gone:     &event{Counter: prometheus.NewCounter(prometheus.CounterOpts{})},
	}
	accepted := counters("pillion_callers_accepted_total",
		"Requests whose caller was let in, by the way it showed who it is; unknown is one that did not and need not.", "way")
	for _, way := range []callers.Way{callers.ByCertificate, callers.ByToken, callers.ByPassword, callers.ByServiceAccount, callers.Unknown} {
		m.ways[way] = accepted.WithLabelValues(string(way))
	}
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "pillion_webhook_duration_seconds",
		Help: "Time from a request's headers to its answer, by webhook.",
		// The API server's own histogram begins at 5 ms, where this one is all but over.
		Buckets:                     []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}, []string{"webhook"})
	registry.MustRegister(durations)
	for webhook, decisions := range map[string][]string{
		webhookMutate:   {decidedInjected, decidedUnchanged, decidedWithheld, decidedIgnored},
		webhookValidate: {"allowed", decidedWarned, "denied", decidedIgnored},
		webhookAdvise:   {decidedWarned, decidedSilent, decidedIgnored},
		webhookShadow:   {decidedWouldInject, decidedWouldDeny, decidedUnchanged, decidedIgnored},
		webhookNone:     nil,
	} {
		m.webhooks[webhook] = m.newWebhook(webhook, durations.WithLabelValues(webhook), decisions)
	}
	m.Use()
	return m
}

// newWebhook has the series of a webhook that may be looked for before they count.
func (m *Metrics) newWebhook(webhook string, durations prometheus.Observer, decisions []string) *webhookSeries {
	s := &webhookSeries{durations: durations, requests: map[outcome]*event{}}
	outcomes := []outcome{{decidedRefused, http.StatusNotFound}}
	if webhook != webhookNone {
		outcomes = []outcome{
			{decidedRefused, http.StatusBadRequest},
			{decidedRefused, http.StatusUnauthorized},
			{decidedRefused, http.StatusRequestEntityTooLarge},
			{decidedRefused, http.StatusInternalServerError},
			{decidedRefused, http.StatusServiceUnavailable},
			{decidedShed, http.StatusTooManyRequests},
		}
	}
	if webhook == webhookValidate {
		outcomes = append(outcomes, outcome{decidedDoubted, http.StatusTemporaryRedirect})
	}
	for _, decision := range decisions {
		outcomes = append(outcomes, outcome{decision, http.StatusOK})
	}
	for _, o := range outcomes {
		s.requests[o] = m.request(webhook, o)
	}
	return s
}

func (m *Metrics) request(webhook string, o outcome) *event {
	return &event{Counter: m.requests.WithLabelValues(webhook, o.decision, strconv.Itoa(o.status))}
}

// decisionCodes are those of [inject.Decision].
func decisionCodes() []inject.Code {
	return []inject.Code{
		inject.CodeMirrorPod, inject.CodeExcludedNamespace, inject.CodeNotOptedIn, inject.CodePodOptedOut, inject.CodeNotRequested,
		inject.CodeWrongOS, inject.CodeHostNetwork, inject.CodeNamespaceNotMatched, inject.CodePodNotMatched, inject.CodeConditionFalse,
		inject.CodeInvalidParameter, inject.CodeRenderFailed, inject.CodeConflict, inject.CodePresent, inject.CodeInjected,
	}
}

// findingCodes are those of [inject.Finding]: about a template, or about none.
func findingCodes(webhook, template string) []inject.Code {
	switch {
	case template == "" && webhook == webhookAdvise:
		return []inject.Code{inject.CodeUnknownTemplate, inject.CodeUnknownParameter, inject.CodeMisplaced}
	case template == "":
		return []inject.Code{inject.CodeUnknownTemplate, inject.CodeUnknownParameter}
	case webhook == webhookValidate:
		return []inject.Code{inject.CodeMissing, inject.CodeAltered, inject.CodeNotInjected, inject.CodeInvalidParameter, inject.CodeUnknownParameter}
	}
	return []inject.Code{inject.CodeUnknownParameter}
}

// Use makes the series of the templates of all sets by which pods are about to be
// injected or judged, and deletes those of other templates. It must not be called
// twice at a time.
func (m *Metrics) Use(sets ...*templates.Set) {
	before, now := m.templates.Load(), map[string]*templateSeries{}
	if before == nil {
		before = &now
	}
	names := []string{""}
	for _, set := range sets {
		for _, t := range set.Templates {
			names = append(names, t.Name)
		}
	}
	for _, name := range names {
		if now[name] == nil {
			now[name] = (*before)[name]
		}
		if now[name] == nil {
			now[name] = m.newTemplate(name)
		}
	}
	m.templates.Store(&now)
	for name := range *before {
		if now[name] == nil {
			m.decisions.DeletePartialMatch(prometheus.Labels{"template": name})
			m.findings.DeletePartialMatch(prometheus.Labels{"template": name})
		}
	}
}

func (m *Metrics) newTemplate(name string) *templateSeries {
	s := &templateSeries{decisions: map[inject.Code]*event{}, findings: map[found]*event{}}
	for _, webhook := range []string{webhookMutate, webhookValidate, webhookAdvise, webhookShadow} {
		for _, code := range findingCodes(webhook, name) {
			s.findings[found{webhook, code}] = &event{Counter: m.findings.WithLabelValues(webhook, name, string(code))}
		}
	}
	if name == "" {
		return s
	}
	for _, code := range decisionCodes() {
		s.decisions[code] = &event{Counter: m.decisions.WithLabelValues(name, string(code))}
	}
	return s
}

func (m *Metrics) ofDecision(d *inject.Decision) *event {
	if s := (*m.templates.Load())[d.Template]; s != nil {
		return cmp.Or(s.decisions[d.Code], m.gone)
	}
	return m.gone
}

func (m *Metrics) ofFinding(webhook string, f *inject.Finding) *event {
	if s := (*m.templates.Load())[f.Template]; s != nil {
		return cmp.Or(s.findings[found{webhook, f.Code}], m.gone)
	}
	return m.gone
}

// ofRequest is what became of the request. One that a stranger made up has a
// series only once there is one.
func (m *Metrics) ofRequest(e *exchange) *event {
	o := outcome{e.decision(), e.status()}
	if known := m.webhooks[e.path()].requests[o]; known != nil {
		return known
	}
	return m.request(e.path(), o)
}

func (m *Metrics) observe(e *exchange, took time.Duration) {
	m.ofRequest(e).Inc()
	durations := m.webhooks[e.path()].durations
	if id := e.traceID(); id != "" {
		durations.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": id})
	} else {
		durations.Observe(took.Seconds())
	}
	if e.caller != "" {
		m.ways[e.caller].Inc()
	}
	if e.refused != nil && e.refused.caller != "" {
		m.refused.WithLabelValues(string(e.refused.caller)).Inc()
	}
	if e.withheld != nil {
		m.withheld.Inc()
		return // nothing of what was decided happens
	}
	if e.result == nil {
		return
	}
	if e.webhook == webhookMutate {
		for i := range e.result.Decisions {
			m.ofDecision(&e.result.Decisions[i]).Inc()
		}
	}
	if e.doubts() {
		return // the API server calls again; what the last call finds counts
	}
	all := e.findings()
	for i := range all {
		m.ofFinding(e.webhook, &all[i]).Inc()
	}
}

// decision is the word for what became of the request.
func (e *exchange) decision() string {
	switch {
	case e.refused != nil && e.refused.status == http.StatusTooManyRequests:
		return decidedShed
	case e.doubts():
		return decidedDoubted
	case e.refused != nil:
		return decidedRefused
	case e.verdict != nil:
		return e.verdict.Word()
	case e.result == nil:
		return decidedIgnored
	case e.preview != nil && e.preview.Word() == "denied":
		return decidedWouldDeny
	case e.preview != nil && e.result.Adds():
		return decidedWouldInject
	case e.webhook == webhookAdvise && len(e.advice) > 0:
		return decidedWarned
	case e.webhook == webhookAdvise:
		return decidedSilent
	case e.withheld != nil:
		return decidedWithheld
	case e.result.Adds():
		return decidedInjected
	}
	return decidedUnchanged
}

// doubts reports whether the API server is to call another replica.
func (e *exchange) doubts() bool { return e.refused != nil && e.refused.location != "" }

// path is the webhook, or a word for any other path.
func (e *exchange) path() string {
	if e.webhook == "" {
		return webhookNone
	}
	return e.webhook
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
