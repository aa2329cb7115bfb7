// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// rolloutMetrics counts the automatic rollouts by their state. There is no series for each template: tenants may have many.
type rolloutMetrics struct {
	leads   func() bool // whether this replica leads: only the leader knows the templates
	entries func() []*kube.Entry
}

var rolloutsDesc = prometheus.NewDesc("pillion_controller_rollouts", "Automatic rollouts by their state.", []string{"state"}, nil)

// Describe implements [prometheus.Collector].
func (m *rolloutMetrics) Describe(all chan<- *prometheus.Desc) { all <- rolloutsDesc }

// Collect implements [prometheus.Collector].
func (m *rolloutMetrics) Collect(all chan<- prometheus.Metric) {
	if !m.leads() {
		return
	}
	counts := map[kube.RolloutState]int{}
	for _, e := range m.entries() {
		if e.Rollout != nil && e.Rollout.Acts() {
			state, _ := e.Rolling()
			counts[state]++
		}
	}
	for _, state := range kube.RolloutStates() {
		all <- prometheus.MustNewConstMetric(rolloutsDesc, prometheus.GaugeValue, float64(counts[state]), string(state))
	}
}
