// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// unavailable matches a number of pods or a percentage, as the CustomResourceDefinitions do.
var unavailable = regexp.MustCompile(`^([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)$`)

// rollout checks the settings of a rollout, also those that contradict each other.
func (c *checker) rollout(y *yaml.Node, t *Template) {
	const path = "spec.rollout."
	of := child(child(y, "spec"), "rollout")
	inert := t.Spec.Rollout.Strategy == "" || t.Spec.Rollout.Strategy == v1alpha1.OnCreate
	most, paused := child(of, "maxUnavailable"), child(of, "paused")
	switch {
	case most == nil:
	case !unavailable.MatchString(most.Value) || (most.ShortTag() == "!!str") != (most.Value[len(most.Value)-1] == '%'):
		c.problem(most, path+"maxUnavailable", "must be a number of pods of at least 1, or a percentage such as 25%%")
	case inert:
		c.problem(most, path+"maxUnavailable", "maxUnavailable is for the strategies InPlace and InPlaceOrRestart; set one, or leave maxUnavailable out")
	}
	if t.Spec.Rollout.Paused && inert {
		c.problem(paused, path+"paused", "with the strategy OnCreate, there is no rollout to pause; set InPlace or InPlaceOrRestart, or leave paused out")
	}
	pod := child(child(child(y, "spec"), "pod"), "spec")
	if t.Spec.Rollout.Strategy == v1alpha1.InPlace && child(pod, "initContainers") == nil && child(pod, "containers") == nil {
		c.problem(child(of, "strategy"), path+"strategy", "a running pod can only change the template's own containers, and it has none; use InPlaceOrRestart or OnCreate")
	}
}
