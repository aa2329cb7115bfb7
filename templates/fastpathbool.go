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

// This file has the conditions among the functions of fastpath.go.

// compileBool compiles an expression of type bool.
func (c *fastpathCompiler) compileBool(e ast.Expr) boolFunc {
	if get := paramOf[types.Bool](c, e); get != nil {
		return func(in *Input) (bool, bool) { v, ok := get(in); return bool(v), ok }
	}
	switch e.Kind() {
	case ast.LiteralKind:
		b, ok := e.AsLiteral().(types.Bool)
		return func(*Input) (bool, bool) { return bool(b), ok }
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return c.compileHas(e)
		}
		if of, name := SplitSelect(e); of == "request" && name == "dryRun" && c.localIndex(of) < 0 {
			return func(in *Input) (bool, bool) { return in.Request.DryRun, true }
		}
		get, _ := c.compileField(e)
		return func(in *Input) (bool, bool) {
			n, ok := get(in)
			return n.Kind() == jsontree.True, ok && (n.Kind() == jsontree.True || n.Kind() == jsontree.False)
		}
	case ast.ComprehensionKind:
		return c.compileQuantifier(e.AsComprehension())
	case ast.CallKind:
		return c.compileBoolCall(e)
	}
	panic(errUnsupported)
}

func (c *fastpathCompiler) compileBoolCall(e ast.Expr) boolFunc {
	function, args := splitCall(e)
	if len(args) > 2 && function != operators.Conditional {
		panic(errUnsupported)
	}
	switch function {
	case operators.LogicalNot:
		return convertedFunc(c.compileBool(args[0]), func(b bool) bool { return !b })
	case operators.LogicalAnd:
		return shortCircuit(c.compileBool(args[0]), c.compileBool(args[1]), false)
	case operators.LogicalOr:
		return shortCircuit(c.compileBool(args[0]), c.compileBool(args[1]), true)
	case operators.Conditional:
		return conditionalFunc(c.compileBool(args[0]), c.compileBool(args[1]), c.compileBool(args[2]))
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return c.compileComparison(function, args[0], args[1])
	case operators.In:
		return c.compileIn(args[0], args[1])
	case overloads.StartsWith:
		return c.compileTextTest(args, strings.HasPrefix)
	case overloads.EndsWith:
		return c.compileTextTest(args, strings.HasSuffix)
	case overloads.Contains:
		return c.compileTextTest(args, strings.Contains)
	case overloads.Matches:
		return c.compileMatches(args)
	case "hasValue":
		return hasOptional(c.compileOptionalText(args[0]))
	}
	panic(errUnsupported)
}

func (c *fastpathCompiler) compileMatches(args []ast.Expr) boolFunc {
	pattern, ok := StringLiteral(args[1])
	if !ok || !c.isKind(args[0], types.StringKind) {
		panic(errUnsupported)
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		panic(errUnsupported)
	}
	get := c.compileText(args[0])
	return func(in *Input) (bool, bool) {
		text, ok := get(in)
		if !ok || !in.countSteps(1+len(text)/8) {
			return false, false
		}
		return compiled.MatchString(text), true
	}
}

// hasOptional returns a function that reports whether there is a value.
func hasOptional(get optionalText) boolFunc {
	return func(in *Input) (bool, bool) { _, found, ok := get(in); return found, ok }
}

// shortCircuit compiles && or ||. If one side has the value end, that is the result, even if the other
// side is an error.
func shortCircuit(left, right boolFunc, end bool) boolFunc {
	return func(in *Input) (bool, bool) {
		if v, ok := left(in); !ok || v == end {
			return v, ok
		}
		return right(in)
	}
}

func (c *fastpathCompiler) compileTextTest(args []ast.Expr, test func(a, b string) bool) boolFunc {
	if !c.isKind(args[0], types.StringKind) || !c.isKind(args[1], types.StringKind) {
		panic(errUnsupported)
	}
	return testPair(c.compileText(args[0]), c.compileText(args[1]), test)
}

func testPair[T any](left, right func(*Input) (T, bool), test func(a, b T) bool) boolFunc {
	return func(in *Input) (bool, bool) {
		a, ok1 := left(in)
		b, ok2 := right(in)
		return ok1 && ok2 && test(a, b), ok1 && ok2
	}
}

func (c *fastpathCompiler) compileComparison(operator string, left, right ast.Expr) boolFunc {
	kind := c.typeOf(left).Kind()
	if !c.isKind(right, kind) {
		panic(errUnsupported)
	}
	switch kind {
	case types.StringKind:
		return testPair(c.compileText(left), c.compileText(right), operatorTest[string](operator))
	case types.IntKind:
		return testPair(c.compileInt(left), c.compileInt(right), operatorTest[int64](operator))
	case types.BoolKind:
		switch operator {
		case operators.Equals:
			return testPair(c.compileBool(left), c.compileBool(right), func(a, b bool) bool { return a == b })
		case operators.NotEquals:
			return testPair(c.compileBool(left), c.compileBool(right), func(a, b bool) bool { return a != b })
		}
	}
	panic(errUnsupported)
}

func operatorTest[T cmp.Ordered](operator string) func(a, b T) bool {
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
