// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
)

// source is a place or a parameter that a goal reads, with what the goal mentions.
type source struct {
	at    path // nil for a parameter
	param string

	compared *mentions // in the same comparison
	all      *mentions // in the whole goal
}

// mentions are strings and numbers, and the numbers next to these.
type mentions struct {
	strings []string // also the numbers
	numbers []int
}

// addValue adds a string, or a number with its neighbors.
func (m *mentions) addValue(value ref.Val) {
	switch v := value.(type) {
	case types.String:
		m.strings = appendNew(m.strings, string(v))
	case types.Int:
		m.numbers = appendNew(m.numbers, int(v), int(v)+1, int(v)-1)
		m.strings = appendNew(m.strings, fmt.Sprint(v), fmt.Sprint(v+1), fmt.Sprint(v-1))
	case types.Double:
		m.strings = appendNew(m.strings, fmt.Sprint(v), fmt.Sprint(v+1), fmt.Sprint(v-1))
	}
}

// The items of a list, or the names of a map's members, that macros such as exists go through.
const (
	allItems = iota
	oldItems // in the world
	newItem  // one more
)

// reader collects what a goal reads in a world.
type reader struct {
	world   *world
	params  params.Values
	items   int // that macros go through
	sources []source
	all     mentions
	left    int // parts to inspect
}

// sourcesOf returns what a goal reads in a world, if macros go through these items.
func (s setter) sourcesOf(w *world, g *goal, items int) []source {
	const most = 1_000 // parts, because each macro inside another one multiplies them
	set, _ := s.paramValues(w, w.toInput())
	r := &reader{world: w, params: set, items: items, left: most}
	p := part{g.expr, g.of, nil}
	switch {
	case !g.ofContainer:
		r.addSources(p, &mentions{})
	case g.orInit && items != newItem:
		r.addSourcesOfItems(p, initContainers, "container", &mentions{})
		fallthrough
	default:
		r.addSourcesOfItems(p, containers, "container", &mentions{})
	}
	return r.sources
}

// part is a part of an expression, with the variables of the macros around it.
type part struct {
	ast.Expr

	of        *cel.Expression
	variables map[string]variable
}

// variable is an item of a list, or the name of a map's member.
type variable struct {
	at     path
	isName bool
}

// childPart returns a part of a part. If that is a variable of the template, it returns the variable's expression.
func (p part) childPart(e ast.Expr) part {
	if v := p.of.Variable(e); v != nil {
		return part{of: v}.childPart(v.AST().Expr())
	}
	return part{e, p.of, p.variables}
}

// isComparison reports whether a part is a condition that has no conditions inside.
func (p part) isComparison() bool {
	if p.of.AST().GetType(p.ID()).Kind() != types.BoolKind || p.Kind() == ast.ComprehensionKind {
		return false
	}
	return p.Kind() != ast.CallKind ||
		!slices.Contains([]string{operators.LogicalNot, operators.LogicalAnd, operators.LogicalOr, operators.Conditional}, p.AsCall().FunctionName())
}

// addSources adds what a part reads. What it mentions is added to m, or, if it is a comparison, to mentions of its own.
func (r *reader) addSources(p part, m *mentions) {
	if r.left--; r.left < 0 {
		return
	}
	if p.isComparison() {
		m = &mentions{}
	}
	if name, ok := paramOf(p.Expr); ok {
		m.addValue(r.params.CEL(name))
		r.sources = append(r.sources, source{nil, name, m, &r.all})
		return
	}
	at, isPlace := p.findPlace()
	if isPlace && len(at) > 1 {
		r.sources = append(r.sources, source{at, "", m, &r.all})
	}
	switch p.Kind() {
	case ast.LiteralKind:
		m.addValue(p.AsLiteral())
		r.all.addValue(p.AsLiteral())
	case ast.SelectKind:
		if !isPlace {
			r.addSources(p.childPart(p.AsSelect().Operand()), m)
		}
	case ast.ListKind:
		r.addSourcesOfAll(p, p.AsList().Elements(), m)
	case ast.CallKind:
		call := p.AsCall()
		if call.FunctionName() == "matches" {
			pattern, _ := cel.StringLiteral(call.Args()[len(call.Args())-1])
			m.strings = appendNew(m.strings, stringMatching(pattern))
		}
		if call.IsMemberFunction() && !isPlace {
			r.addSources(p.childPart(call.Target()), m)
		}
		if call.IsMemberFunction() || !isPlace { // otherwise the operands are names and indexes
			r.addSourcesOfAll(p, call.Args(), m)
		}
	case ast.ComprehensionKind:
		c := p.AsComprehension()
		r.addSourcesOfAll(p, []ast.Expr{c.AccuInit(), c.Result()}, m)
		if list, ok := p.childPart(c.IterRange()).findPlace(); ok {
			r.addSourcesOfItems(p.childPart(c.LoopStep()), list, c.IterVar(), m)
		} else {
			r.addSourcesOfAll(p, []ast.Expr{c.IterRange(), c.LoopStep()}, m)
		}
	}
}

func (r *reader) addSourcesOfAll(p part, children []ast.Expr, m *mentions) {
	for _, e := range children {
		r.addSources(p.childPart(e), m)
	}
}

// addSourcesOfItems adds what a part reads if a macro's variable is an item of a list.
func (r *reader) addSourcesOfItems(p part, list path, name string, m *mentions) {
	items := r.world.childPaths(list)
	more := list.childPath(len(items))
	if isMap(list) {
		more = list.childPath(some)
	}
	switch r.items {
	case allItems:
		items = append(items, more)
	case newItem:
		items = []path{more}
	}
	variables := p.variables
	for _, at := range items {
		p.variables = map[string]variable{}
		maps.Copy(p.variables, variables)
		p.variables[name] = variable{at, isMap(list)}
		r.addSources(p, m)
	}
}

// findPlace returns the place that a part reads. For the name of a member, this is the map.
func (p part) findPlace() (path, bool) {
	switch p.Kind() {
	case ast.IdentKind:
		v, ok := p.variables[p.AsIdent()]
		switch {
		case ok && v.isName:
			return v.at[:len(v.at)-1], true
		case ok:
			return v.at, true
		}
		return path{p.AsIdent()}, typeAt(path{p.AsIdent()}) != nil
	case ast.SelectKind:
		at, ok := p.childPart(p.AsSelect().Operand()).findPlace()
		if ok && len(at) == 1 && at[0] == request.AccountVariable && p.AsSelect().FieldName() == "name" {
			return path{"pod", "spec", "serviceAccountName"}, true
		}
		return at.childPath(p.AsSelect().FieldName()), ok
	case ast.CallKind:
		call := p.AsCall()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			at, ok := p.childPart(call.Args()[0]).findPlace()
			step := p.findStep(call.Args()[1])
			return at.childPath(step), ok && step != nil
		case "orValue", "value", "or":
			return p.childPart(call.Target()).findPlace()
		}
	}
	return nil, false
}

// findStep returns the name or the index that an expression is, or nil.
func (p part) findStep(e ast.Expr) any {
	if v, ok := p.variables[e.AsIdent()]; ok && v.isName && e.Kind() == ast.IdentKind {
		return v.at[len(v.at)-1]
	}
	switch value := e.AsLiteral().(type) {
	case types.String:
		return string(value)
	case types.Int:
		if 0 <= value && value < maxList {
			return int(value)
		}
	}
	return nil
}
