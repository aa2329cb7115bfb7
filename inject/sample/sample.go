// SPDX-License-Identifier: Apache-2.0

// Package sample makes pods that meet a template's condition, so that the template can
// be tried. It reads what the condition compares, makes that so, and evaluates the condition
// itself on the result: what it does not understand costs a sample, never a wrong one.
package sample

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
)

// Situation is what a template's expressions read.
type Situation struct {
	Pod       []byte // JSON
	Namespace templates.Namespace
	Username  string
	DryRun    bool
}

// Request is the request that creates the pod.
func (s Situation) Request() templates.RequestInfo {
	return templates.RequestInfo{Operation: "CREATE", Username: s.Username, DryRun: s.DryRun}
}

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

// conjuncts are the parts of an expression that must all hold.
func conjuncts(e ast.Expr) []ast.Expr {
	if call := e.AsCall(); e.Kind() == ast.CallKind && call.FunctionName() == operators.LogicalAnd {
		var all []ast.Expr
		for _, arg := range call.Args() {
			all = append(all, conjuncts(arg)...)
		}
		return all
	}
	return []ast.Expr{e}
}

// goal is an expression that has to be true: of the pod, or of some container of it.
type goal struct {
	expression                *templates.Expression
	expr                      ast.Expr
	container, initContainers bool
}

func (s *solver) goals() []*goal {
	if e := s.template.ConditionExpression(); e != nil {
		return []*goal{{expression: e, expr: e.AST().Expr()}}
	}
	return nil
}

// maxSteps bounds the search for one goal, and maxEvals the evaluations in it: nested variables are
// evaluated again and again.
const maxSteps, maxEvals = 2_000, 20_000

// reach is the first world in which all goals can be and that took takes, or nil.
func (s *solver) reach(w *world, goals []*goal, took func(*world) bool) (found *world) {
	s.steps, s.evals = maxSteps, maxEvals
	s.all(w, goals, func(w *world) bool {
		if s.steps -= 10; took(w) { // it costs more than a step
			found = w
		}
		return found != nil
	})
	return found
}

func (s *solver) all(w *world, goals []*goal, then func(*world) bool) bool {
	if len(goals) == 0 {
		return then(w)
	}
	g, rest := goals[0], func(w *world) bool { return s.all(w, goals[1:], then) }
	if !g.container {
		return s.of(g).meet(w, g.expr, true, nil, rest)
	}
	for _, sc := range containers(w, g) {
		if s.of(g).meet(w, g.expr, true, sc, rest) {
			return true
		}
	}
	const list = "containers"
	grown, at := w.grow(path{"pod", "spec", list})
	return s.of(g).meet(grown, g.expr, true, &scope{name: "container", place: at}, rest)
}

// holds reports whether a goal is reached, of some container if it is about containers.
func (s *solver) holds(w *world, g *goal) bool {
	if !g.container {
		return s.of(g).is(w, g.expr, true, nil)
	}
	return slices.ContainsFunc(containers(w, g), func(sc *scope) bool { return s.of(g).is(w, g.expr, true, sc) })
}

func containers(w *world, g *goal) []*scope {
	var all []*scope
	for _, list := range []string{"containers", "initContainers"} {
		if list == "initContainers" && !g.initContainers {
			continue
		}
		items, _ := w.get(path{"pod", "spec", list}).([]any)
		for i := range items {
			all = append(all, &scope{name: "container", place: path{"pod", "spec", list, i}})
		}
	}
	return all
}

// decodes reports whether JSON is a pod: a value of the wrong type is none.
func decodes(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(&corev1.Pod{}) == nil
}
