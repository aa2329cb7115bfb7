// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/parser"

	"github.com/pillion-dev/pillion/templates/cel"
)

// goal is an expression that must be true for the pod, or for at least one container.
type goal struct {
	expression                *cel.Expression
	expr                      ast.Expr
	container, initContainers bool
}

// celText returns a part of the goal's expression as CEL, or the whole expression if that fails.
func (g *goal) celText(part ast.Expr) string {
	text, err := parser.Unparse(part, g.expression.AST().SourceInfo(), parser.WrapOnColumn(1<<30))
	if err != nil {
		return g.expression.Source()
	}
	return text
}

// maxSteps limits one call of reach, and maxEvals the evaluations in it, because nested
// variables are evaluated repeatedly.
const maxSteps, maxEvals = 2_000, 20_000

// reachGoals returns the first world that the search for all goals finds and that took accepts, or
// nil.
func (s *solver) reachGoals(w *world, goals []*goal, took func(*world) bool) (found *world) {
	s.steps, s.evals = maxSteps, maxEvals
	s.meetAll(w, goals, func(w *world) bool {
		if s.steps -= 10; took(w) { // costs more than a step
			found = w
		}
		return found != nil
	})
	return found
}

func (s *solver) meetAll(w *world, goals []*goal, then func(*world) bool) bool {
	if len(goals) == 0 {
		return then(w)
	}
	g, rest := goals[0], func(w *world) bool { return s.meetAll(w, goals[1:], then) }
	if !g.container {
		return s.searchFor(g.expression).meetCondition(w, g.expr, true, nil, rest)
	}
	for _, sc := range containerScopes(w, g) {
		if s.searchFor(g.expression).meetCondition(w, g.expr, true, sc, rest) {
			return true
		}
	}
	const list = "containers"
	grown, at := w.withItem(path{"pod", "spec", list})
	return s.searchFor(g.expression).meetCondition(grown, g.expr, true, &scope{name: "container", place: at}, rest)
}

// isReached reports whether a goal is reached, for at least one container if it is about
// containers.
func (s *solver) isReached(w *world, g *goal) bool {
	if !g.container {
		return s.searchFor(g.expression).evaluatesTo(w, g.expr, true, nil)
	}
	return slices.ContainsFunc(containerScopes(w, g), func(sc *scope) bool { return s.searchFor(g.expression).evaluatesTo(w, g.expr, true, sc) })
}

func containerScopes(w *world, g *goal) []*scope {
	var all []*scope
	for _, list := range []string{"containers", "initContainers"} {
		if list == "initContainers" && !g.initContainers {
			continue
		}
		items, _ := w.valueAt(path{"pod", "spec", list}).([]any)
		for i := range items {
			all = append(all, &scope{name: "container", place: path{"pod", "spec", list, i}})
		}
	}
	return all
}
