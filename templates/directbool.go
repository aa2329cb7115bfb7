// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// This file has the conditions among the functions of direct.go.

// bool compiles an expression of type bool.
func (c *directly) bool(e ast.Expr) boolFunc {
	if get := paramOf[types.Bool](c, e); get != nil {
		return func(in *Input) (bool, bool) { v, ok := get(in); return bool(v), ok }
	}
	switch e.Kind() {
	case ast.LiteralKind:
		b, ok := e.AsLiteral().(types.Bool)
		return func(*Input) (bool, bool) { return bool(b), ok }
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return c.has(e)
		}
		if of, name := selected(e); of == "request" && name == "dryRun" && c.local(of) < 0 {
			return func(in *Input) (bool, bool) { return in.Request.DryRun, true }
		}
		get, _ := c.field(e)
		return func(in *Input) (bool, bool) {
			n, ok := get(in)
			return n.Kind() == jsontree.True, ok && (n.Kind() == jsontree.True || n.Kind() == jsontree.False)
		}
	case ast.ComprehensionKind:
		return c.loop(e.AsComprehension())
	case ast.CallKind:
		return c.boolCall(e)
	}
	panic(errUnsupported)
}

func (c *directly) boolCall(e ast.Expr) boolFunc {
	function, args := call(e)
	if len(args) > 2 && function != operators.Conditional {
		panic(errUnsupported)
	}
	switch function {
	case operators.LogicalNot:
		return converted(c.bool(args[0]), func(b bool) bool { return !b })
	case operators.LogicalAnd:
		return shortcut(c.bool(args[0]), c.bool(args[1]), false)
	case operators.LogicalOr:
		return shortcut(c.bool(args[0]), c.bool(args[1]), true)
	case operators.Conditional:
		return choose(c.bool(args[0]), c.bool(args[1]), c.bool(args[2]))
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return c.comparison(function, args[0], args[1])
	case operators.In:
		return c.in(args[0], args[1])
	case overloads.StartsWith:
		return c.ofTexts(args, strings.HasPrefix)
	case overloads.EndsWith:
		return c.ofTexts(args, strings.HasSuffix)
	case overloads.Contains:
		return c.ofTexts(args, strings.Contains)
	case overloads.Matches:
		return c.matches(args)
	case "hasValue":
		return exists(c.optionalText(args[0]))
	}
	panic(errUnsupported)
}

func (c *directly) matches(args []ast.Expr) boolFunc {
	pattern, ok := literal(args[1])
	if !ok || !c.is(args[0], types.StringKind) {
		panic(errUnsupported)
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		panic(errUnsupported)
	}
	get := c.text(args[0])
	return func(in *Input) (bool, bool) {
		text, ok := get(in)
		if !ok || !in.step(1+len(text)/8) {
			return false, false
		}
		return compiled.MatchString(text), true
	}
}

// exists returns a function that reports whether there is a value.
func exists(get optionalText) boolFunc {
	return func(in *Input) (bool, bool) { _, found, ok := get(in); return found, ok }
}

// shortcut compiles && or ||. If one side has the value end, that is the result, even if the other
// side is an error.
func shortcut(left, right boolFunc, end bool) boolFunc {
	return func(in *Input) (bool, bool) {
		if v, ok := left(in); !ok || v == end {
			return v, ok
		}
		return right(in)
	}
}

func (c *directly) ofTexts(args []ast.Expr, test func(a, b string) bool) boolFunc {
	if !c.is(args[0], types.StringKind) || !c.is(args[1], types.StringKind) {
		panic(errUnsupported)
	}
	return paired(c.text(args[0]), c.text(args[1]), test)
}

func paired[T any](left, right func(*Input) (T, bool), test func(a, b T) bool) boolFunc {
	return func(in *Input) (bool, bool) {
		a, ok1 := left(in)
		b, ok2 := right(in)
		return ok1 && ok2 && test(a, b), ok1 && ok2
	}
}

func (c *directly) comparison(operator string, left, right ast.Expr) boolFunc {
	kind := c.typeOf(left).Kind()
	if !c.is(right, kind) {
		panic(errUnsupported)
	}
	switch kind {
	case types.StringKind:
		return paired(c.text(left), c.text(right), ordered[string](operator))
	case types.IntKind:
		return paired(c.int(left), c.int(right), ordered[int64](operator))
	case types.BoolKind:
		switch operator {
		case operators.Equals:
			return paired(c.bool(left), c.bool(right), func(a, b bool) bool { return a == b })
		case operators.NotEquals:
			return paired(c.bool(left), c.bool(right), func(a, b bool) bool { return a != b })
		}
	}
	panic(errUnsupported)
}

func ordered[T cmp.Ordered](operator string) func(a, b T) bool {
	switch operator {
	case operators.Equals:
		return func(a, b T) bool { return a == b }
	case operators.NotEquals:
		return func(a, b T) bool { return a != b }
	case operators.Less:
		return func(a, b T) bool { return a < b }
	case operators.LessEquals:
		return func(a, b T) bool { return a <= b }
	case operators.Greater:
		return func(a, b T) bool { return a > b }
	}
	return func(a, b T) bool { return a >= b }
}
