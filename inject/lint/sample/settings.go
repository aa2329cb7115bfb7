// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Setting is what annotations do with a parameter: they give it a value, or none of them sets it.
type Setting struct {
	Value string // as users write it
	Unset bool
}

// Settings are those of some parameters, by their names. Other parameters keep their values.
type Settings map[string]Setting

// Merge returns the settings of both. If they differ about a parameter, it has the first one, and Merge returns false.
func (s Settings) Merge(other Settings) (both Settings, same bool) {
	both, same = Settings{}, true
	maps.Copy(both, other)
	for name, setting := range s {
		if had, ok := other[name]; ok && had != setting {
			same = false
		}
		both[name] = setting
	}
	return both, same
}

// IsSettable reports whether annotations may set a parameter.
func IsSettable(p *v1alpha1.Param) bool { return len(annotationPlaces(p)) > 0 }

// SetParams returns a copy of a situation with other annotations, so that the template's parameters have these settings. It returns
// false if a parameter must not have its value, or if no annotation may set it.
func SetParams(t *templates.Template, from Situation, settings Settings) (Situation, bool) {
	w, err := newWorld(from)
	if err != nil {
		return from, false
	}
	s := setter{template: t}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		set := settings[name]
		keep := func(next *world) bool { w = next; return true }
		if !s.hasParam(w, name, false, keep) || !set.Unset && !s.setParam(w, name, set.Value, keep) {
			return from, false
		}
	}
	pod, err := json.Marshal(w.doc["pod"])
	if err != nil {
		return from, false
	}
	to := from
	to.Pod, to.Namespace = pod, w.input().Namespace
	to.Namespace.Known = from.Namespace.Known
	return to, true
}

// InputOf returns what the template's expressions read in a situation. It returns false if a parameter has no valid value.
func InputOf(t *templates.Template, s Situation) (*cel.Input, params.Values, bool) {
	w, err := newWorld(s)
	if err != nil {
		return nil, nil, false
	}
	in := w.input()
	values, err := t.Values(w.nodeAt(path{"pod", "metadata", "annotations"}), in.ServiceAccount, &in.Namespace)
	return in, values, err == nil
}

// Wanted is a value that an expression should have, while other expressions are true.
type Wanted struct {
	Guards     []*cel.Expression
	Expression *cel.Expression // nil if only the guards matter
	Value      ref.Val
}

// ReachValue searches for a situation in which an expression may have the wanted value, and that accept accepts. It returns the given
// situation and false if it finds none.
func ReachValue(t *templates.Template, from Situation, wanted Wanted, accept func(Situation) bool) (Situation, bool) {
	w, err := newWorld(from)
	if err != nil {
		return from, false
	}
	s := &solver{setter: setter{t, nil}, steps: maxSteps, evals: maxEvals}
	var goals []*goal
	for _, guard := range wanted.Guards {
		goals = append(goals, &goal{expression: guard, expr: guard.AST().Expr()})
	}
	found, met := from, false
	took := func(w *world) bool {
		s.steps -= 10 // costs more than a step
		to, ok := w.situation()
		to.Owner = from.Owner
		if met = ok && accept(to); met {
			found = to
		}
		return met
	}
	s.meetAll(w, goals, func(w *world) bool {
		if wanted.Expression == nil {
			return took(w)
		}
		search := s.searchFor(wanted.Expression)
		if b, ok := wanted.Value.(types.Bool); ok {
			return search.meetCondition(w, wanted.Expression.AST().Expr(), bool(b), nil, took)
		}
		return search.assignValue(w, wanted.Expression.AST().Expr(), wanted.Value, nil, took)
	})
	return found, met
}

// Candidates returns values that a parameter accepts: samples, and strings that match its pattern.
func Candidates(t *templates.Template, p *v1alpha1.Param) (all []string) {
	candidates := append(params.Samples(p), stringsMatching(p.Pattern)...)
	if p.Items != nil {
		candidates = append(candidates, stringsMatching(p.Items.Pattern)...)
	}
	for _, value := range candidates {
		if t.Takes(p.Name, value) == nil && !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}
