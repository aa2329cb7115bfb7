// SPDX-License-Identifier: Apache-2.0

// Package sample creates pods that meet a template's condition, so that the template can
// be tried. It reads the comparisons in the condition and builds a pod that satisfies them.
// Then it evaluates the condition on that pod. If it does not understand a comparison, it may
// find no sample, but it never returns a wrong one.
package sample

import (
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
)

// Meet searches for a situation in which the template's condition is true and that accept accepts.
// The search starts with the given situation, and changes no fixed parameter. If it can, it makes
// the first entries of forEachContainer apply to some container too. It returns the given situation
// and false if it finds none.
func Meet(t *templates.Template, from Situation, fixed []string, accept func(Situation) bool) (Situation, bool) {
	w, err := newWorld(from)
	if err != nil {
		return from, false
	}
	s := &solver{setter: setter{t, fixed}}
	var met []*goal
	if e := t.ConditionExpression(); e != nil {
		met = append(met, &goal{expression: e, expr: e.AST().Expr()})
	}
	took := func(w *world) bool {
		for _, g := range met {
			if !s.isReached(w, g) {
				return false
			}
		}
		to, ok := w.situation()
		return ok && accept(to)
	}
	if w = s.reachGoals(w, met, took); w == nil {
		return from, false
	}
	const most = 20 // each makes the search for the next one slower
	for _, each := range t.EachFragments() {
		if each.Where == nil || len(met) > most {
			continue
		}
		met = append(met, &goal{expression: each.Where, expr: each.Where.AST().Expr(), container: true, initContainers: each.InitContainers})
		if more := s.reachGoals(w, met[len(met)-1:], took); more != nil {
			w = more
		} else {
			met = met[:len(met)-1]
		}
	}
	to, _ := w.situation() // accept returned true
	return to, true
}

// Unmet returns the parts of the template's condition for which the search finds no pod that also
// meets the earlier parts.
func Unmet(t *templates.Template, from Situation, fixed []string) []string {
	w, err := newWorld(from)
	if err != nil || t.ConditionExpression() == nil {
		return nil
	}
	s := &solver{setter: setter{t, fixed}}
	var unmet []string
	var met []*goal
	for _, part := range cel.Conjuncts(t.ConditionExpression().AST().Expr()) {
		g := &goal{expression: t.ConditionExpression(), expr: part}
		next := s.reachGoals(w, []*goal{g}, func(w *world) bool {
			_, ok := w.situation()
			return ok && !slices.ContainsFunc(append(met, g), func(g *goal) bool { return !s.isReached(w, g) })
		})
		if next != nil {
			w, met = next, append(met, g)
			continue
		}
		unmet = append(unmet, g.celText(part))
	}
	return unmet
}
