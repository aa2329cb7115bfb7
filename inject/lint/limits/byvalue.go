// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject/lint/exposure"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
)

// The limits of what is tried for other changes.
const (
	maxValuePods = 400 // pods that are injected
	maxByValue   = 12  // sentences
)

// tryValues records what values of single parameters change about the pods, besides Pod Security: the quality of service class, and
// what additions change for the rest of the pod. The pods are the samples that get the template.
func (trial *Trial) tryValues(t *templates.Template) {
	left, known := maxValuePods, map[string]bool{}
	for i := range t.Spec.Params {
		p := &t.Spec.Params[i]
		if !sample.IsSettable(p) || !t.Uses(p.Name) {
			continue
		}
		for _, setting := range exposure.Candidates(t, p) {
			if left -= len(trial.samples); left < 0 || len(trial.ByValue) >= maxByValue {
				trial.Cut = true
				return
			}
			for _, what := range trial.changesWith(t, sample.Settings{p.Name: setting}) {
				if key := p.Name + " " + what; !known[key] { // another value of the parameter may have the same effect
					known[key] = true
					trial.ByValue = append(trial.ByValue, fmt.Sprintf("with %s, %s", describeParams([]ParamValue{newParamValue(t, p.Name, setting)}), what))
				}
			}
		}
	}
}

// changesWith returns what settings change about the samples.
func (trial *Trial) changesWith(t *templates.Template, settings sample.Settings) (all []string) {
	for _, from := range trial.samples {
		to, ok := sample.SetParams(t, from, settings)
		if !ok {
			return nil
		}
		r := injectInto(to, t)
		if !r.Decisions[0].Code.Succeeded() {
			return nil
		}
		before := decodePod(from.Pod)
		class, after := QoS(before), QoS(r.pod)
		usual := class
		if known, ok := trial.QoS[class]; ok {
			usual = known
		}
		switch after {
		case usual:
		case class:
			all = append(all, fmt.Sprintf("a %s pod stays %s", class, class))
		default:
			all = append(all, fmt.Sprintf("a %s pod becomes %s, because %s", class, after, qosWhy(r.pod, class)))
		}
		c := ofSample(before, r.pod, "Deployment")
		for i := range effects {
			if effects[i].inTrial {
				continue
			}
			for _, sentence := range effects[i].of(c) {
				if !slices.Contains(trial.Effects, sentence) && !slices.Contains(all, sentence) {
					all = append(all, sentence)
				}
			}
		}
	}
	return all
}
