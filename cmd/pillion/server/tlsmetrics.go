// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pillion-dev/pillion/certs"
)

// certificateMetrics registers metrics that are read from the certificate's status when they are collected.
func certificateMetrics(c *certificate, registry prometheus.Registerer) {
	metrics := promauto.With(registry)
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		metrics.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	counter := func(name, help string, labels prometheus.Labels, value func() float64) {
		metrics.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	gauge("pillion_certificate_not_before_timestamp_seconds",
		"Time from which the serving certificate is valid, in seconds since 1970; 0 if there is none.", nil,
		func() float64 { return notBeforeSeconds(c.Status().Leaf) })
	gauge("pillion_certificate_expires_timestamp_seconds",
		"Time at which the serving certificate expires, in seconds since 1970; 0 if there is none.", nil,
		func() float64 { return notAfterSeconds(c.Status().Leaf) })
	gauge("pillion_certificate_pending_since_timestamp_seconds",
		"Time since which a new certificate waits to be served, in seconds since 1970; 0 if none waits.", nil,
		func() float64 {
			if pending := c.Status().Pending; pending != nil {
				return unixSeconds(pending.Since)
			}
			return 0
		})
	for _, configuration := range certs.AllConfigurations() {
		gauge("pillion_certificate_mismatched_webhooks",
			"Webhooks whose caBundle does not verify the serving certificate.", prometheus.Labels{"configuration": string(configuration)},
			func() float64 { return float64(len(c.Status().Mismatch[configuration])) })
	}
	for _, reason := range certs.RejectionReasons() {
		counter("pillion_certificate_rejected_total",
			"New certificates that Pillion could not use, so that the last valid one stayed.", prometheus.Labels{"reason": reason},
			func() float64 { return float64(c.Status().Rejections[reason]) })
	}
	if c.authority == nil {
		return
	}
	gauge("pillion_certificate_authority_expires_timestamp_seconds",
		"Time at which the CA that Pillion created expires, in seconds since 1970; 0 if there is none.", nil,
		func() float64 { return notAfterSeconds(c.authority.Status().CA) })
	gauge("pillion_certificate_authority_leader",
		"1 for the replica that renews the certificates.", nil,
		func() float64 {
			if c.authority.Status().Leading {
				return 1
			}
			return 0
		})
	counter("pillion_certificate_authority_failures_total",
		"Failed attempts to write certificates or caBundles.", nil,
		func() float64 { return float64(c.authority.Status().Failed) })
}

func notBeforeSeconds(c *x509.Certificate) float64 {
	if c == nil {
		return 0
	}
	return unixSeconds(c.NotBefore)
}

func notAfterSeconds(c *x509.Certificate) float64 {
	if c == nil {
		return 0
	}
	return unixSeconds(c.NotAfter)
}

func unixSeconds(t time.Time) float64 { return float64(t.Unix()) }
