// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/certs"
)

// certificateMetrics tells the status in numbers.
type certificateMetrics struct {
	*certificate
	notBefore, expires, pending, mismatch, refused *prometheus.Desc
	caExpires, leading, failures                   *prometheus.Desc // where Pillion makes the certificates
}

func newCertificateMetrics(c *certificate) *certificateMetrics {
	m := &certificateMetrics{
		certificate: c,
		notBefore: prometheus.NewDesc("pillion_certificate_not_before_timestamp_seconds",
			"Since when the serving certificate is valid, in seconds since 1970; 0 while there is none.", nil, nil),
		expires: prometheus.NewDesc("pillion_certificate_expires_timestamp_seconds",
			"When the serving certificate expires, in seconds since 1970; 0 while there is none.", nil, nil),
		pending: prometheus.NewDesc("pillion_certificate_pending_since_timestamp_seconds",
			"Since when a new certificate waits to be served, in seconds since 1970; 0 while none does.", nil, nil),
		mismatch: prometheus.NewDesc("pillion_certificate_mismatched_webhooks",
			"Webhooks whose caBundle does not verify the serving certificate.", []string{"configuration"}, nil),
		refused: prometheus.NewDesc("pillion_certificate_refused_total",
			"New certificates that could not be used, so that the last good one stayed.", []string{"reason"}, nil),
	}
	if c.authority != nil {
		m.caExpires = prometheus.NewDesc("pillion_certificate_authority_expires_timestamp_seconds",
			"When the CA that Pillion made expires, in seconds since 1970; 0 while there is none.", nil, nil)
		m.leading = prometheus.NewDesc("pillion_certificate_authority_leader",
			"1 for the replica that renews the certificates.", nil, nil)
		m.failures = prometheus.NewDesc("pillion_certificate_authority_failures_total",
			"Attempts to write certificates or caBundles that failed.", nil, nil)
	}
	return m
}

// Describe implements [prometheus.Collector].
func (m *certificateMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.notBefore, m.expires, m.pending, m.mismatch, m.refused, m.caExpires, m.leading, m.failures} {
		if d != nil {
			to <- d
		}
	}
}

// Collect implements [prometheus.Collector].
func (m *certificateMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.Status()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	notBefore, expires, pending := int64(0), int64(0), int64(0)
	if s.Leaf != nil {
		notBefore, expires = s.Leaf.NotBefore.Unix(), s.Leaf.NotAfter.Unix()
	}
	if s.Pending != nil {
		pending = s.Pending.Since.Unix()
	}
	gauge(m.notBefore, float64(notBefore))
	gauge(m.expires, float64(expires))
	gauge(m.pending, float64(pending))
	for _, c := range certs.AllConfigurations() {
		gauge(m.mismatch, float64(len(s.Mismatch[c])), string(c))
	}
	for _, reason := range certs.RefusalReasons() {
		to <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(s.Refusals[reason]), reason)
	}
	if m.authority == nil {
		return
	}
	a := m.authority.Status()
	caExpires, leading := int64(0), 0.0
	if a.CA != nil {
		caExpires = a.CA.NotAfter.Unix()
	}
	if a.Leading {
		leading = 1
	}
	gauge(m.caExpires, float64(caExpires))
	gauge(m.leading, leading)
	to <- prometheus.MustNewConstMetric(m.failures, prometheus.CounterValue, float64(a.Failed))
}
