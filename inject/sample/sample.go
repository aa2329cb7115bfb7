// SPDX-License-Identifier: Apache-2.0

// Package sample creates pods that meet a template's condition, so that the template can
// be tried. It reads the comparisons in the condition and builds a pod that satisfies them.
// Then it evaluates the condition on that pod. If it does not understand a comparison, it may
// find no sample, but it never returns a wrong one.
package sample

import (
	"slices"

	"github.com/pillion-dev/pillion/templates"
)

// Meet changes a situation so that the template's condition holds and accept takes it, if it
// can. It changes as little as it can, and no parameter that is fixed. If it can, it also lets
// every entry of forEachContainer apply to some container.
func Meet(t *templates.Template, from Situation, fixed []string, accept func(Situation) bool) (Situation, bool) {
	w, err := newWorld(from)
	if err != nil {
		return from, false
	}
	s := &solver{template: t, fixed: fixed}
	met := s.goals()
	took := func(w *world) bool {
		for _, g := range met {
			if !s.holds(w, g) {
				return false
			}
		}
		to, ok := w.situation()
		return ok && accept(to)
	}
	if w = s.reach(w, met, took); w == nil {
		return from, false
	}
	for _, each := range t.EachFragments() {
		if each.Where == nil {
			continue
		}
		met = append(met, &goal{expression: each.Where, expr: each.Where.AST().Expr(), container: true, initContainers: each.InitContainers})
		if more := s.reach(w, met[len(met)-1:], took); more != nil {
			w = more
		} else {
			met = met[:len(met)-1]
		}
	}
	to, _ := w.situation() // accept took it
	return to, true
}

// Unmet are the parts of the template's condition that cannot be met, as they are written. If every
// part can be met alone, they are those that do not hold with the others.
func Unmet(t *templates.Template, from Situation, fixed []string) []string {
	w, err := newWorld(from)
	if err != nil || t.ConditionExpression() == nil {
		return nil
	}
	s := &solver{template: t, fixed: fixed}
	var unmet []string
	var met []*goal
	for _, part := range conjuncts(t.ConditionExpression().AST().Expr()) {
		g := &goal{expression: t.ConditionExpression(), expr: part}
		next := s.reach(w, []*goal{g}, func(w *world) bool {
			_, ok := w.situation()
			return ok && !slices.ContainsFunc(append(met, g), func(g *goal) bool { return !s.holds(w, g) })
		})
		if next != nil {
			w, met = next, append(met, g)
			continue
		}
		unmet = append(unmet, g.text(part))
	}
	return unmet
}
