// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
	"github.com/pillion-dev/pillion/templates"
)

// Metrics counts requests and their results. Its series are bounded, because no author of a pod can choose the value of
// a label: the templates of the cluster belong to its administrators, and those of namespaces share series.
//
// The series are created when templates load, and exist with 0 before the first event. A request
// finds them in maps, so it takes no lock.
type Metrics struct {
	requests, decisions, findings, rejected *prometheus.CounterVec

	endpoints []*endpoint

	panics    *event
	withheld  *event
	webhooks  map[string]*webhookSeries
	ways      map[authentication.Way]prometheus.Counter
	templates atomic.Pointer[map[string]*templateSeries]
	gone      *event // counts for templates that are no longer in use; it is not registered
}

// event is something that is counted and logged.
type event struct {
	prometheus.Counter
	lines sampler
}

type webhookSeries struct {
	durations prometheus.Observer
	requests  map[outcome]*event
}

type templateSeries struct {
	decisions map[inject.Code]*event
	findings  map[webhookCode]*event
}

// webhookCode is the code of a finding that a webhook has.
type webhookCode struct {
	webhook string
	code    inject.Code
}

func newMetrics(registry prometheus.Registerer, endpoints []*endpoint) *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		requests: counters("pillion_webhook_requests_total", "Requests by webhook, decision and HTTP status.",
			"webhook", "decision", "status"),
		decisions: counters("pillion_decisions_total", "Decisions of the mutating webhook by template and reason code; one for each template and pod.",
			"template", "code"),
		findings: counters("pillion_findings_total",
			"Findings about final pods (validate) and about annotations of pods (mutate, advise, shadow), by webhook, template and reason code.",
			"webhook", "template", "code"),
		rejected: counters("pillion_callers_rejected_total", "Requests rejected with 401, by the problem with the caller's credential.",
			"reason"),
		panics:    &event{Counter: counters("pillion_webhook_panics_total", "Requests that ended in a panic and were answered with 500.").WithLabelValues()},
		withheld:  &event{Counter: counters("pillion_webhook_patches_withheld_total", "Patches that were not sent because they would not only have added missing fields.").WithLabelValues()},
		endpoints: endpoints,
		webhooks:  map[string]*webhookSeries{},
		ways:      map[authentication.Way]prometheus.Counter{},
		gone:      &event{Counter: prometheus.NewCounter(prometheus.CounterOpts{})},
	}
	accepted := counters("pillion_callers_accepted_total",
		"Requests by how the caller authenticated; unknown if it did not authenticate.", "way")
	for _, way := range []authentication.Way{authentication.ByCertificate, authentication.ByToken, authentication.ByPassword, authentication.ByServiceAccount, authentication.Unknown} {
		m.ways[way] = accepted.WithLabelValues(string(way))
	}
	durations := promauto.With(registry).NewHistogramVec(prometheus.HistogramOpts{
		Name: "pillion_webhook_duration_seconds",
		Help: "Time from a request's headers to its response, by webhook.",
		// The API server's own histogram begins at 5 ms; almost all requests take less.
		Buckets:                     []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}, []string{"webhook"})
	m.webhooks[nowhere.name] = m.newWebhook(nowhere.name, durations.WithLabelValues(nowhere.name), []outcome{{decidedRejected, http.StatusNotFound}})
	for _, e := range m.endpoints {
		m.webhooks[e.name] = m.newWebhook(e.name, durations.WithLabelValues(e.name), slices.Concat(e.decisions, failures))
	}
	m.Use()
	return m
}

// failures are outcomes that a request to any endpoint can have.
var failures = []outcome{
	{decidedIgnored, http.StatusOK},
	{decidedRejected, http.StatusBadRequest},
	{decidedRejected, http.StatusUnauthorized},
	{decidedRejected, http.StatusRequestEntityTooLarge},
	{decidedRejected, http.StatusInternalServerError},
	{decidedRejected, http.StatusServiceUnavailable},
	{decidedShed, http.StatusTooManyRequests},
}

// newWebhook creates the series of a webhook, so that they exist before the first event.
func (m *Metrics) newWebhook(webhook string, durations prometheus.Observer, outcomes []outcome) *webhookSeries {
	s := &webhookSeries{durations: durations, requests: map[outcome]*event{}}
	for _, o := range outcomes {
		s.requests[o] = m.requestEvent(webhook, o)
	}
	return s
}

func (m *Metrics) requestEvent(webhook string, o outcome) *event {
	return &event{Counter: m.requests.WithLabelValues(webhook, o.decision, strconv.Itoa(o.status))}
}

// OfNamespaces is the value of the label template for all templates of namespaces. These have no series of
// their own, because the authors of pods may create such templates.
const OfNamespaces = "(namespaced)"

// Use creates the series for the templates of all sets in use, and deletes those of other
// templates. It must not be called concurrently.
func (m *Metrics) Use(sets ...*templates.Set) {
	before, now := m.templates.Load(), map[string]*templateSeries{}
	if before == nil {
		before = &now
	}
	names := []string{""}
	for _, set := range sets {
		for _, t := range set.Templates {
			if t.Namespace != "" { // all further templates of the set are also for namespaces
				names = append(names, OfNamespaces)
				break
			}
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
	s := &templateSeries{decisions: map[inject.Code]*event{}, findings: map[webhookCode]*event{}}
	for _, e := range m.endpoints {
		codes := e.findings
		if name == "" { // about no template
			codes = e.general
		}
		for _, code := range codes {
			s.findings[webhookCode{e.name, code}] = &event{Counter: m.findings.WithLabelValues(e.name, name, string(code))}
		}
	}
	if name == "" {
		return s
	}
	for _, code := range inject.DecisionCodes() {
		s.decisions[code] = &event{Counter: m.decisions.WithLabelValues(name, string(code))}
	}
	return s
}

func (m *Metrics) ofDecision(d *inject.Decision) *event {
	if s := m.ofTemplate(d.Template); s != nil {
		return cmp.Or(s.decisions[d.Code], m.gone)
	}
	return m.gone
}

func (m *Metrics) ofFinding(webhook string, f *inject.Finding) *event {
	if s := m.ofTemplate(f.Template); s != nil {
		return cmp.Or(s.findings[webhookCode{webhook, f.Code}], m.gone)
	}
	return m.gone
}

// ofTemplate returns the series of a template in use, or nil.
func (m *Metrics) ofTemplate(name string) *templateSeries {
	all := *m.templates.Load()
	return cmp.Or(all[name], all[OfNamespaces])
}

// ofRequest returns the counter of the request's outcome. An outcome that only a faulty client can
// cause gets its series with its first event.
func (m *Metrics) ofRequest(e *exchange) *event {
	o := outcome{e.decision(), e.status()}
	if known := m.webhooks[e.endpoint.name].requests[o]; known != nil {
		return known
	}
	return m.requestEvent(e.endpoint.name, o)
}

func (m *Metrics) observeRequest(e *exchange, took time.Duration) {
	m.ofRequest(e).Inc()
	durations := m.webhooks[e.endpoint.name].durations
	if id := e.traceID(); id != "" {
		durations.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": id})
	} else {
		durations.Observe(took.Seconds())
	}
	if e.caller != "" {
		m.ways[e.caller].Inc()
	}
	if e.rejected != nil && e.rejected.caller != "" {
		m.rejected.WithLabelValues(string(e.rejected.caller)).Inc()
	}
	if e.withheld != nil {
		m.withheld.Inc()
		return // no decision takes effect
	}
	if e.rejected != nil {
		return // the API server calls again, and that call counts, or it ignores the webhook
	}
	if e.endpoint.counted {
		decisions := e.decisions()
		for i := range decisions {
			m.ofDecision(&decisions[i]).Inc()
		}
	}
	all := e.findings()
	for i := range all {
		m.ofFinding(e.endpoint.name, &all[i]).Inc()
	}
}
