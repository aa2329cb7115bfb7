// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// RolloutLimits returns what a template says about the rollout of a workload. It returns an error if a value is not valid,
// which the checks of templates prevent.
func RolloutLimits(of *v1alpha1.Rollout) (l rollout.Limits, err error) {
	if of.MinReady != "" {
		if l.MinReady, err = time.ParseDuration(of.MinReady); err != nil {
			return l, err
		}
	}
	if of.Bake != "" {
		bake, err := time.ParseDuration(of.Bake)
		if err != nil {
			return l, err
		}
		l.Bake = &bake
	}
	if of.MaxUnavailable != nil {
		most, err := rollout.ParseUnavailable(of.MaxUnavailable.String())
		if err != nil {
			return l, err
		}
		l.MaxUnavailable = append(l.MaxUnavailable, most)
	}
	return l, nil
}
