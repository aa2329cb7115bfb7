// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/values"
)

// The limits of a search: the worlds that it tries for one goal and for all of them, and what their evaluations cost, in CEL's units. To
// offer a world counts as much as to try offerCost of them.
const (
	maxForGoal, maxForAll, offerCost = 4_000, 12_000, 40

	maxCost = cel.MaxTotal
)

// search looks for a world that meets goals.
type search struct {
	setter

	world    *world
	met      []*goal // by the world
	left     int     // worlds to try for the goal
	leftAll  int     // worlds to try for all goals
	spent    uint64  // what evaluations have cost
	programs map[ast.Expr]*cel.Evaluation
}

func newSearch(t *templates.Template, from Situation, fixed []string) (*search, error) {
	w, err := newWorld(from)
	return &search{setter: setter{t, fixed}, world: w, leftAll: maxForAll, programs: map[ast.Expr]*cel.Evaluation{}}, err
}

// meetGoal changes the world so that it meets one more goal and accept accepts it. It returns false if it finds no such world. It changes
// up to two of the values that the goal reads. Or it begins with a world in which each of them is the first that the goal suggests,
// either in the items that lists have or in a new one, and changes one.
func (s *search) meetGoal(g *goal, accept func(Situation) bool) bool {
	s.left = min(maxForGoal, s.leftAll)
	before := s.left
	offer := func(w *world) bool {
		s.left -= offerCost
		to, ok := w.toSituation()
		return ok && !slices.ContainsFunc(s.met, func(g *goal) bool { return !s.isMet(w, g) }) && accept(to)
	}
	changed, grown := s.withFirstValues(g, oldItems), s.withFirstValues(g, newItem)
	var found *world
	for _, try := range []struct {
		from    *world
		changes int
	}{{s.world, 0}, {s.world, 1}, {changed, 0}, {grown, 0}, {changed, 1}, {grown, 1}, {s.world, 2}} {
		if found = s.reachGoal(try.from, g, try.changes, offer); found != nil {
			s.world, s.met = found, append(s.met, g)
			break
		}
	}
	s.leftAll -= before - s.left
	return found != nil
}

// reachGoal returns the first world that meets a goal after so many changes and that offer accepts, or nil.
func (s *search) reachGoal(w *world, g *goal, changes int, offer func(*world) bool) *world {
	if changes == 0 {
		if s.left--; s.isMet(w, g) && offer(w) {
			return w
		}
		return nil
	}
	for _, from := range s.sourcesOf(w, g, allItems) {
		for _, other := range s.changesOf(w, &from) {
			if s.left <= 0 || s.spent > maxCost {
				return nil
			}
			if found := s.reachGoal(other, g, changes-1, offer); found != nil {
				return found
			}
		}
	}
	return nil
}

// withFirstValues returns the world with the first value for everything that a goal reads.
func (s *search) withFirstValues(g *goal, items int) *world {
	w := s.world
	for _, from := range s.sourcesOf(w, g, items) {
		if all := s.changesOf(w, &from); len(all) > 0 {
			w = all[0]
		}
	}
	return w
}

// isMet reports whether a world meets a goal.
func (s *search) isMet(w *world, g *goal) bool {
	program := s.programs[g.expr]
	if program == nil {
		var err error
		if program, err = g.of.Part(g.expr); err != nil {
			return false
		}
		s.programs[g.expr] = program
	}
	in := w.toInput()
	set, _ := s.paramValues(w, in) // without those that have no valid value
	isTrue := func(variables map[string]ref.Val) bool {
		value, err := program.ValueWithCost(in, set, variables, &s.spent)
		return err == nil && value == types.True
	}
	if !g.ofContainer {
		return isTrue(nil)
	}
	return slices.ContainsFunc(g.containerPaths(w), func(at path) bool { return isTrue(map[string]ref.Val{"container": values.Of(w.nodeAt(at))}) })
}
