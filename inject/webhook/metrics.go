// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what the webhooks were asked and what they said. No label's
// value can be made up by who creates pods: templates are the operator's.
type Metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	findings  *prometheus.CounterVec
	verdicts  *prometheus.CounterVec
	panics    prometheus.Counter
	accepted  *prometheus.CounterVec
	refused   *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pillion_webhook_requests_total",
			Help: "Requests by webhook and HTTP status.",
		}, []string{"webhook", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pillion_webhook_duration_seconds",
			Help: "Time from a request's headers to its answer, by webhook.",
			// The API server's own histogram begins at 5 ms, where this one is all but over.
			Buckets: []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .05, .25, 1, 5},
		}, []string{"webhook"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pillion_decisions_total",
			Help: "Decisions of the mutating webhook by template and reason code; one for each template and pod.",
		}, []string{"template", "code"}),
		findings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pillion_findings_total",
			Help: "What is wrong with final pods (validate) and with what pods ask for (mutate, advise), by webhook, template and reason code.",
		}, []string{"webhook", "template", "code"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pillion_verdicts_total",
			Help: "Final pods by what became of them: allowed, warned, denied, or doubted, where another replica is to be asked.",
		}, []string{"verdict"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pillion_webhook_panics_total",
			Help: "Requests that ended in a panic and were answered with 500.",
		}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pillion_callers_accepted_total",
			Help: "Requests whose caller was let in, by the way it showed who it is; unknown is one that did not and need not.",
		}, []string{"way"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pillion_callers_refused_total",
			Help: "Requests whose caller was refused with 401, by what was wrong with its credential.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.requests, m.durations, m.decisions, m.findings, m.verdicts, m.panics, m.accepted, m.refused)
	return m
}

func (m *Metrics) observe(e *exchange, took time.Duration) {
	webhook := e.webhook
	if webhook == "" {
		webhook = "none"
	}
	m.requests.WithLabelValues(webhook, strconv.Itoa(e.status())).Inc()
	m.durations.WithLabelValues(webhook).Observe(took.Seconds())
	if e.caller != "" {
		m.accepted.WithLabelValues(string(e.caller)).Inc()
	}
	if e.refused != nil && e.refused.caller != "" {
		m.refused.WithLabelValues(string(e.refused.caller)).Inc()
	}
	if e.result == nil {
		return
	}
	switch e.webhook {
	case "validate":
		m.verdicts.WithLabelValues(e.verdict.Word()).Inc()
	case "mutate":
		for i := range e.result.Decisions {
			d := &e.result.Decisions[i]
			m.decisions.WithLabelValues(d.Template, string(d.Code)).Inc()
		}
	}
	for _, f := range e.findings() {
		m.findings.WithLabelValues(webhook, f.Template, string(f.Code)).Inc()
	}
}
