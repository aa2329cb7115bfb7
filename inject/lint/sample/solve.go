// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/values"
)

// solver searches for worlds in which the expressions of a template have the wanted values. A
// search calls a continuation with every world that it finds, until the continuation returns
// true.
type solver struct {
	setter

	steps    int                  // remaining
	evals    int                  // remaining
	searches map[*ast.AST]*search // by the expression
}

// search is a solver for one expression.
type search struct {
	*solver

	expression *cel.Expression
	parts      map[int64]*cel.Evaluation
}

// then continues the search with a world.
type then = func(*world) bool

func (s *solver) searchFor(e *cel.Expression) *search {
	if s.searches == nil {
		s.searches = map[*ast.AST]*search{}
	}
	if s.searches[e.AST()] == nil {
		s.searches[e.AST()] = &search{s, e, map[int64]*cel.Evaluation{}}
	}
	return s.searches[e.AST()]
}

// scope is a macro's variable, inside the scopes around it. The variable is a place, the name
// of a member, an expression, or a computed value such as an item of a split string.
type scope struct {
	outer *scope
	name  string

	place path
	key   bool // the value is the last name of the place
	expr  ast.Expr
	in    *scope // scope of expr
	value ref.Val
	text  ast.Expr // the string that was split into this item and others
}

// withOuter returns the scope of a variable inside another scope.
func (sc scope) withOuter(outer *scope, name string) *scope {
	sc.outer, sc.name = outer, name
	return &sc
}

func (sc *scope) findScope(name string) *scope {
	for ; sc != nil; sc = sc.outer {
		if sc.name == name {
			return sc
		}
	}
	return nil
}

// evalExpr returns the value of an expression in a world. It returns nil if there is an error or
// if no evaluations remain.
func (s *search) evalExpr(w *world, e ast.Expr, sc *scope) ref.Val {
	if s.evals--; s.evals < 0 {
		return nil
	}
	part := s.parts[e.ID()]
	if part == nil {
		var err error
		if part, err = s.expression.Part(e); err != nil {
			return nil
		}
		s.parts[e.ID()] = part
	}
	variables := map[string]ref.Val{}
	for v := sc; v != nil; v = v.outer {
		if _, ok := variables[v.name]; ok {
			continue
		}
		value := s.scopeValue(w, v)
		if value == nil {
			return nil
		}
		variables[v.name] = value
	}
	in := w.input()
	values, _ := s.template.Values(w.nodeAt(path{"pod", "metadata", "annotations"}), in.ServiceAccount, &in.Namespace)
	value, err := part.Value(in, values, variables)
	if err != nil || types.IsUnknownOrError(value) {
		return nil
	}
	return value
}

func (s *search) scopeValue(w *world, v *scope) ref.Val {
	switch {
	case v.expr != nil:
		return s.evalExpr(w, v.expr, v.in)
	case v.value != nil:
		return v.value
	case v.key:
		return types.String(v.place[len(v.place)-1].(string))
	}
	if n := w.nodeAt(v.place); n != nil {
		return values.Of(n)
	}
	return nil
}

// evaluatesTo reports whether a condition has the wanted value.
func (s *search) evaluatesTo(w *world, e ast.Expr, want bool, sc *scope) bool {
	return s.evalExpr(w, e, sc) == types.Bool(want)
}

// meetCondition continues with worlds in which a condition may have the wanted value. It starts with
// the given world if the condition has the wanted value there.
func (s *search) meetCondition(w *world, e ast.Expr, want bool, sc *scope, next then) bool {
	if s.steps--; s.steps < 0 {
		return false
	}
	if s.evaluatesTo(w, e, want, sc) && next(w) {
		return true
	}
	if v := s.expression.Variable(e); v != nil {
		return s.searchFor(v).meetCondition(w, v.AST().Expr(), want, nil, next)
	}
	switch e.Kind() {
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return s.meetPresence(w, e, want, sc, next)
		}
	case ast.ComprehensionKind:
		return s.meetQuantifier(w, e, want, sc, next)
	case ast.CallKind:
		return s.meetCall(w, e, want, sc, next)
	}
	return s.assignValue(w, e, types.Bool(want), sc, next)
}

func (s *search) meetCall(w *world, e ast.Expr, want bool, sc *scope, next then) bool {
	call := e.AsCall()
	args := call.Args()
	both := func(a, b bool) bool {
		return s.meetCondition(w, args[0], a, sc, func(w *world) bool { return s.meetCondition(w, args[1], b, sc, next) })
	}
	switch name := call.FunctionName(); name {
	case operators.LogicalNot:
		return s.meetCondition(w, args[0], !want, sc, next)
	case operators.LogicalAnd, operators.LogicalOr:
		if want == (name == operators.LogicalAnd) {
			return both(want, want)
		}
		return s.meetCondition(w, args[0], want, sc, next) || s.meetCondition(w, args[1], want, sc, next)
	case operators.Conditional:
		choose := func(condition bool, value ast.Expr) bool {
			return s.meetCondition(w, args[0], condition, sc, func(w *world) bool { return s.meetCondition(w, value, want, sc, next) })
		}
		return choose(true, args[1]) || choose(false, args[2])
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return s.meetComparison(w, name, args, want, sc, next)
	case operators.In:
		return s.meetIn(w, args[0], args[1], want, sc, next)
	case "sets.contains", "sets.intersects":
		list, items := args[0], args[1]
		if name == "sets.intersects" && list.Kind() == ast.ListKind {
			list, items = items, list
		}
		if items.Kind() == ast.ListKind {
			return s.meetSets(w, name == "sets.contains", list, items.AsList().Elements(), want, sc, next)
		}
	case "hasValue":
		return s.meetPresence(w, call.Target(), want, sc, next)
	case "startsWith", "endsWith", "contains", "matches":
		return s.meetStringTest(w, e, want, sc, next)
	}
	return s.assignValue(w, e, types.Bool(want), sc, next)
}

// meetPresence adds or removes the value at a place.
func (s *search) meetPresence(w *world, e ast.Expr, want bool, sc *scope, next then) bool {
	if name, ok := paramOf(e); ok {
		return s.hasParam(w, name, want, next)
	}
	p, ok := s.placeOf(w, e, sc)
	switch {
	case !ok:
		return false
	case !want:
		return next(w.withValue(p, nil))
	}
	value := anyOf(p)
	return value != nil && next(w.withValue(p, value))
}

// meetSets makes a list contain all of the items, or at least one. If want is false, it makes the list
// not contain them.
func (s *search) meetSets(w *world, all bool, list ast.Expr, items []ast.Expr, want bool, sc *scope, next then) bool { //nolint:revive // the parameters go through the whole search
	if len(items) == 0 {
		return all == want && next(w)
	}
	first := func(next then) bool { return s.meetIn(w, items[0], list, want, sc, next) }
	rest := func(w *world) bool { return s.meetSets(w, all, list, items[1:], want, sc, next) }
	if all == want {
		return first(rest)
	}
	return first(next) || rest(w)
}

// loop is a macro: exists, all or map. It treats exists_one as exists, and filter as a map with a
// condition.
type loop struct {
	macro       string
	list        ast.Expr
	name        string
	where, body ast.Expr // body: the result of map, or the condition of a quantifier
}

func loopOf(e ast.Expr) (loop, bool) {
	if e.Kind() != ast.ComprehensionKind || e.AsComprehension().HasIterVar2() || e.AsComprehension().LoopStep().Kind() != ast.CallKind {
		return loop{}, false
	}
	c := e.AsComprehension()
	l, args := loop{list: c.IterRange(), name: c.IterVar()}, c.LoopStep().AsCall().Args()
	step := c.LoopStep().AsCall().FunctionName()
	if step == operators.Conditional && args[1].Kind() == ast.CallKind {
		l.where, args = args[0], args[1].AsCall().Args()
	} else if step == operators.Conditional {
		return loop{}, false
	}
	if len(args) != 2 {
		return loop{}, false
	}
	switch {
	case step == operators.LogicalOr:
		l.macro, l.body = "exists", args[1]
	case step == operators.LogicalAnd:
		l.macro, l.body = "all", args[1]
	case args[1].Kind() == ast.ListKind && args[1].AsList().Size() == 1:
		l.macro, l.body = "map", args[1].AsList().Elements()[0]
	case l.where != nil:
		l.macro, l.body = "exists", l.where // exists_one
	}
	return l, l.macro != ""
}

func (s *search) meetQuantifier(w *world, e ast.Expr, want bool, sc *scope, next then) bool {
	l, ok := loopOf(e)
	if !ok || l.macro == "map" {
		return false
	}
	if want == (l.macro == "exists") {
		return s.forSomeItem(w, l, sc, func(w *world, item *scope) bool { return s.meetCondition(w, l.body, want, item, next) })
	}
	items := s.itemScopes(w, l, sc)
	if s.meetEach(w, items, func(w *world, item *scope, next then) bool { return s.meetCondition(w, l.body, want, item, next) }, next) {
		return true
	}
	p, ok := s.placeOf(w, l.list, sc)
	return ok && !slices.Equal(p, path{"pod", "spec", "containers"}) && next(w.withValue(p, nil))
}

// meetEach continues after do was applied to every item.
func (s *search) meetEach(w *world, items []*scope, do func(*world, *scope, then) bool, next then) bool {
	if len(items) == 0 {
		return next(w)
	}
	return do(w, items[0], func(w *world) bool { return s.meetEach(w, items[1:], do, next) })
}
