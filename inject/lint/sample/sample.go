// SPDX-License-Identifier: Apache-2.0

// Package sample makes pods that meet a template's condition, so that the template can be tried.
//
// It tries values instead of solving the condition. For each part of the condition, it collects the fields, labels, annotations and
// parameters that the part reads, and the strings and numbers that it mentions. It sets one or two of the fields to such a value, to a
// usual one or to none, and evaluates the part, so a sample is never wrong. It does not know what functions do: it finds no sample if
// the needed value is not mentioned, for example for name.reverse() == 'bew'. Then the author of the template has to name a pod.
//
// What else is here, also serves package exposure: how annotations set parameters, and which values a parameter accepts.
package sample

import (
	"github.com/pillion-dev/pillion/templates"
)

// Meet searches for a situation in which the template's condition is true and that accept accepts. The search starts with the given
// situation, and changes no fixed parameter. If it can, it makes the first entries of forEachContainer apply to some container too.
// If it finds no such situation, it returns the given one, false, and the parts of the condition that it did not meet.
func Meet(t *templates.Template, from Situation, fixed []string, accept func(Situation) bool) (to Situation, unmet []string, ok bool) {
	s, err := newSearch(t, from, fixed)
	if err != nil {
		return from, nil, false
	}
	goals := conditionsOf(t)
	if len(goals) == 0 && !accept(from) {
		return from, nil, false
	}
	for i, g := range goals {
		isLast := i == len(goals)-1 && len(unmet) == 0
		if ok = isLast && s.meetGoal(g, accept); !ok && !s.meetGoal(g, func(Situation) bool { return true }) {
			unmet = append(unmet, g.celText())
		}
	}
	if len(goals) > 0 && !ok {
		return from, unmet, false
	}
	const most = 6 // each makes the search for the next one slower
	for _, each := range t.EachFragments() {
		if each.Where != nil && len(s.met) <= most {
			s.meetGoal(&goal{each.Where, each.Where.AST().Expr(), true, each.InitContainers}, accept)
		}
	}
	to, _ = s.world.toSituation() // accept returned true
	return to, nil, true
}

// FalseParts returns the parts of the template's condition that are false for a situation.
func FalseParts(t *templates.Template, of Situation) (all []string) {
	s, err := newSearch(t, of, nil)
	if err != nil {
		return nil
	}
	for _, g := range conditionsOf(t) {
		if !s.isMet(s.world, g) {
			all = append(all, g.celText())
		}
	}
	return all
}
