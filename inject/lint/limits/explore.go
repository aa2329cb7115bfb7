// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/inject/lint/exposure"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
)

// AllowOn also records what the values of parameters allow on further pods, for example those of the template's tests. Pods that do not
// get the template are ignored. If no sample gets the template, the first of these pods is used as one. On the others, only values are
// tried that are likely to lead to a violation, so what is uncertain is known of the first one.
func (e *Evaluator) AllowOn(trial *Trial, t *templates.Template, pods []Subject) {
	t = withoutSelectors(t)
	for _, pod := range pods {
		pod.Situation = hardenPod(pod.Situation)
		before := decodePod(pod.Pod)
		if len(e.findViolations(before, before)) > 0 {
			continue
		}
		if trial.PodSecurity == "" && len(trial.Fails) == 0 {
			r := injectInto(pod.Situation, t)
			if !r.Decisions[0].Code.Succeeded() {
				continue
			}
			trial.Unmet, trial.Sample = nil, []string{pod.On}
			e.measureEffect(trial, t, r, before)
		}
		effort := certain
		if trial.from == nil {
			effort = searching
		}
		trial.recordAllowed(e, t, pod.Situation, effort)
	}
}

// recordAllowed records what the values of parameters allow on a pod that gets the template. The pod's own containers must conform to
// restricted.
func (trial *Trial) recordAllowed(e *Evaluator, t *templates.Template, from sample.Situation, effort effort) {
	a := &attempt{Evaluator: e, template: t, from: from, before: decodePod(from.Pod), left: maxTries, effort: effort}
	if a.now = injectInto(from, t); !a.now.Decisions[0].Code.Succeeded() {
		return
	}
	a.known = e.findViolations(a.now.pod, a.before)
	if trial.from == nil {
		trial.from = &from
		if effort == searching {
			trial.Choices = a.findChoices()
		}
	}
	work := exposure.Work{Evaluations: 20_000, Cost: 20 * cel.MaxTotal}
	if effort == direct { // in a request
		a.left, work = maxTries/6, exposure.Work{Evaluations: 2_000, Cost: cel.MaxTotal / 2}
	}
	stored := from
	var err error
	if stored.Pod, err = schema.AsStored(from.Pod); err != nil {
		panic("limits: " + err.Error())
	}
	found, err := exposure.Explore(t, stored, work)
	if err != nil {
		panic("limits: " + err.Error())
	}
	base := e.findViolations(found.Base, a.before)
	for _, group := range a.groupWays(found, base) {
		allowed, ok := a.findSettings(group, found.Ways)
		if ok && !slices.ContainsFunc(trial.Allows, allowed.isPartOf) {
			trial.Allows = append(trial.Allows, allowed)
		}
	}
	trial.Allows = joinSameValues(trial.Allows)
	slices.SortStableFunc(trial.Allows, func(a, b Allowed) int { return psa.CompareLevels(a.PodSecurity, b.PodSecurity) })
	trial.Cut = trial.Cut || found.Cut || a.left <= 0
	if trial.Worst == "" {
		trial.added = worstLevel(a.known)
		trial.Worst = trial.added
	}
	for i := range trial.Allows {
		trial.Worst = weakerLevel(trial.Worst, trial.Allows[i].PodSecurity)
	}
}

// measureEffect records the effect of the template on the first pod.
func (e *Evaluator) measureEffect(trial *Trial, t *templates.Template, r *result, before *corev1.Pod) {
	trial.PodSecurity, trial.Why = e.Level(r.pod)
	if level, _ := e.Level(before); level != psa.LevelRestricted {
		trial.Without = level
	}
	trial.Pod, _ = json.Marshal(r.pod)
	trial.Requests = subtractResources(totalResources(withDefaults(r.pod), requestsOf), totalResources(withDefaults(before), requestsOf))
	trial.Hints = append(append(trial.Hints, r.mistakeHints(t)...), r.Decisions[0].Notes...)
}

// subtractResources subtracts the resources of b from those of a, and omits those that are equal.
func subtractResources(a, b corev1.ResourceList) corev1.ResourceList {
	for name, q := range a {
		if q.Sub(b[name]); q.IsZero() {
			delete(a, name)
		} else {
			a[name] = q
		}
	}
	return a
}
