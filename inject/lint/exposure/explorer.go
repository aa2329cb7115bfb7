// SPDX-License-Identifier: Apache-2.0

// Package exposure finds what the parameters of a template can make of a pod, as far as the Pod Security Standards matter.
//
// [Explore] goes through all fields that a Pod Security check reads, and through what decides whether they exist. For each, it finds
// the values that annotations can lead to: all of them if the parameters that it depends on have few values, and otherwise at least
// one value for each way in which a check can reject the field. It errs on the safe side: it may return a pod that no annotations
// lead to, but if a check rejects a pod that annotations lead to, it also rejects one of the returned pods.
package exposure

import (
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Way is a value that annotations may give a field, or whether the field exists.
type Way struct {
	// Path is the field in the template, for example spec.pod.spec.containers[0].securityContext.privileged.
	Path string
	// Params are the parameters that decide it, sorted.
	Params []string
	// Settings lead to it, if they are known. They still have to be verified.
	Settings sample.Settings
	// Pod has the value, and of what the template adds beside it only the container or the volume that it is in.
	Pod *corev1.Pod
}

// Result is what Explore finds.
type Result struct {
	// Base is the pod as the current parameters have it, reduced to fields that checks read.
	Base *corev1.Pod
	// Ways differ from it in one field each.
	Ways []Way
	// Cut reports whether there was more to try than fits into the limits. The ways are complete nevertheless.
	Cut bool
}

// Work limits an exploration: the number of evaluations of expressions, and what they cost together, in CEL's units.
type Work struct {
	Evaluations int
	Cost        uint64
}

// Explore explores a template for a pod that it is for.
func Explore(t *templates.Template, from sample.Situation, most Work) (*Result, error) {
	x := &explorer{
		template: t, from: from, settable: map[string]*v1alpha1.Param{}, domains: map[string]domain{}, programs: map[*cel.Expression]*cel.Evaluation{},
		inputs: map[string]*evaluationInput{}, left: most.Evaluations, budget: most.Cost,
	}
	for i := range t.Spec.Params {
		if p := &t.Spec.Params[i]; sample.IsSettable(p) {
			x.settable[p.Name], x.domains[p.Name] = p, domainOf(t, p)
		}
	}
	var pod map[string]any
	if err := json.Unmarshal(from.Pod, &pod); err != nil {
		return nil, err
	}
	delete(memberOf(pod, "metadata"), "creationTimestamp") // a stored pod without one has an empty object there
	var parts []part
	for i, each := range t.EachFragments() { // first, because it is not for the template's containers
		parts = append(parts, x.exploreEach(i, each))
	}
	parts = append(parts, part{x.exploreView(t.PodFragment(), reflect.TypeFor[corev1.Pod](), "", "spec.pod"), addToPod})
	return x.combineParts(pod, parts)
}

// part is a part of the template that is added by itself: spec.pod, or an entry of spec.forEachContainer.
type part struct {
	alternatives []alternative
	addTo        func(pod map[string]any, value any)
}

// exploreEach explores an entry of spec.forEachContainer, as if all app containers got the same values.
func (x *explorer) exploreEach(i int, each templates.EachFragment) part {
	all := x.exploreView(each.Add, reflect.TypeFor[corev1.Container](), "", eachPath(i))
	if each.Where != nil && len(x.settableOf(each.Where)) > 0 {
		none := alternative{absent: true, params: x.settableOf(each.Where), path: eachPath(i) + ".where"}
		for j := range all {
			all[j].params = unionOfNames(all[j].params, none.params)
			all[j].path = eachPath(i) + ".where"
		}
		all = append([]alternative{none}, all...)
	}
	return part{all, func(pod map[string]any, value any) { addToContainers(pod, value, each.InitContainers) }}
}

// combineParts returns the base, a pod in which each part has its first value, and for each other value a way: a pod with that part
// alone. A way does not need the other parts, because the base shows what checks say about them.
func (x *explorer) combineParts(pod map[string]any, parts []part) (*Result, error) {
	base := cloneJSON(pod).(map[string]any)
	for _, p := range parts {
		if len(p.alternatives) > 0 && !p.alternatives[0].absent {
			p.addTo(base, p.alternatives[0].value)
		}
	}
	result := &Result{Cut: x.cut}
	var err error
	if result.Base, err = decodePod(base); err != nil {
		return nil, err
	}
	for _, p := range parts {
		for i := range p.alternatives[min(1, len(p.alternatives)):] {
			a := &p.alternatives[i+1]
			made := cloneJSON(pod).(map[string]any)
			if !a.absent {
				p.addTo(made, a.value)
			}
			way := Way{Path: a.path, Params: a.params, Settings: a.settings}
			if way.Pod, err = decodePod(made); err != nil {
				return nil, err
			}
			result.Ways = append(result.Ways, way)
		}
	}
	return result, nil
}

func decodePod(made map[string]any) (*corev1.Pod, error) {
	text, err := json.Marshal(made)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, json.Unmarshal(text, pod)
}
