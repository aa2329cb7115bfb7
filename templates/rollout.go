// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// unavailable matches a number of pods or a percentage, as the CustomResourceDefinitions do.
var unavailable = regexp.MustCompile(`^([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)$`)

// duration matches a duration, as the CustomResourceDefinitions do.
var duration = regexp.MustCompile(`^([0-9]+(ms|s|m|h))+$`)

// areShares reports whether strings are percentages in ascending order.
func areShares(texts []string) bool {
	last := 0
	for _, text := range texts {
		number, percent := strings.CutSuffix(text, "%")
		n, err := strconv.Atoi(number)
		if err != nil || !percent || n <= last || n > 100 {
			return false
		}
		last = n
	}
	return true
}

// checkRollout checks the settings of a rollout, also those that contradict each other.
func (c *parser) checkRollout(y *yaml.Node, t *Template) {
	const path = "spec.rollout."
	of := yamlnode.Child(yamlnode.Child(y, "spec"), "rollout")
	inert := t.Spec.Rollout.Strategy == "" || t.Spec.Rollout.Strategy == v1alpha1.OnCreate
	most, paused := yamlnode.Child(of, "maxUnavailable"), yamlnode.Child(of, "paused")
	switch {
	case most == nil:
	case !unavailable.MatchString(most.Value) || (most.ShortTag() == "!!str") != (most.Value[len(most.Value)-1] == '%'):
		c.ReportProblem(most, path+"maxUnavailable", "must be a number of pods of at least 1, or a percentage such as 25%%")
	case inert:
		c.ReportProblem(most, path+"maxUnavailable", "maxUnavailable is for the strategies InPlace and InPlaceOrRestart; set one, or leave maxUnavailable out")
	}
	if t.Spec.Rollout.Paused && inert {
		c.ReportProblem(paused, path+"paused", "with the strategy OnCreate, there is no rollout to pause; set InPlace or InPlaceOrRestart, or leave paused out")
	}
	for _, key := range []string{"first", "waves", "scope", "onFailure"} {
		if value := yamlnode.Child(of, key); value != nil && inert {
			c.ReportProblem(value, path+key, "%s is for the strategies InPlace and InPlaceOrRestart; set one, or leave %s out", key, key)
		}
	}
	if first := t.Spec.Rollout.First; first != nil && *first < 0 {
		c.ReportProblem(yamlnode.Child(of, "first"), path+"first", "must be a number of pods of at least 0")
	}
	for _, key := range []string{"minReady", "bake"} {
		if value := yamlnode.Child(of, key); value != nil && value.ShortTag() == "!!str" && !duration.MatchString(value.Value) {
			c.ReportProblem(value, path+key, "must be a duration such as 30s or 5m")
		}
	}
	if waves := yamlnode.Child(of, "waves"); waves != nil && !areShares(t.Spec.Rollout.Waves) {
		c.ReportProblem(waves, path+"waves", "must be percentages in ascending order, such as [5%%, 25%%, 100%%]")
	}
	pod := yamlnode.Child(yamlnode.Child(yamlnode.Child(y, "spec"), "pod"), "spec")
	if t.Spec.Rollout.Strategy == v1alpha1.InPlace && yamlnode.Child(pod, "initContainers") == nil && yamlnode.Child(pod, "containers") == nil {
		c.ReportProblem(yamlnode.Child(of, "strategy"), path+"strategy", "a running pod can only change the template's own containers, and it has none; use InPlaceOrRestart or OnCreate")
	}
}
