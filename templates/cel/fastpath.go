// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"cmp"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// CEL takes microseconds for the simplest expression: it allocates values, accounts costs and calls
// interfaces. Common expressions are therefore also compiled to functions that read the tree. Such
// a function returns the same value as CEL, or ok false. In that case CEL evaluates the expression,
// and reports the error if there is one. FuzzDirect compares the two.
//
// Without these functions, a request with the two shipped templates of the benchmarks makes 163 allocations instead of at most 60,
// and a webhook that tries a template with 400 conditions on sample pods takes 369 MiB. The handler takes as long for one template
// with CEL (19 µs), and 5 µs more for the shipped ones (36 and 41 µs). For templates with CEL in nearly every place, it takes 36 and
// 49 µs, and a request over TLS 19 to 36 % more CPU. Folding constants (cel.OptOptimize, which is on) and programs that do not track
// their cost change little of that.
//
// CEL's cost limits do not apply to these functions, so they have limits of their own, see
// [Input.countSteps]. They also read only shorter strings.
type (
	textFunc func(*Input) (v string, ok bool)
	boolFunc func(*Input) (v, ok bool)
	intFunc  func(*Input) (v int64, ok bool)
	nodeFunc func(*Input) (v *jsontree.Node, ok bool) // an object or a list

	// These return a value that may be missing.
	optionalText func(*Input) (v string, found, ok bool)
	optionalNode func(*Input) (v *jsontree.Node, found, ok bool)
	lookupFunc   func(in *Input, key string) (v string, found, ok bool) // in a map of strings
)

// fastpath is an expression as functions. They are nil if there are none.
type fastpath struct {
	bool boolFunc                               // nil if it is not a condition
	text textFunc                               // the value as a part of a string
	node func(in *Input, n *jsontree.Node) bool // sets n to the value
}

// countSteps counts repeated work. It reports whether the count is within the limit.
func (in *Input) countSteps(n int) bool {
	in.steps += n
	return in.steps <= maxFastSteps
}

// fastpathCompiler compiles functions from a checked expression. Its methods panic with errUnsupported for
// expressions that they do not support.
type fastpathCompiler struct {
	*ast.AST
	params []v1alpha1.Param

	variables []*lazy
	loops     []string // variables of the ${forEach} around the expression
	locals    []string // variables of the enclosing loops, the innermost last
}

var errUnsupported = errors.New("there is no function for this expression")

func newFastpath(checked *ast.AST, params []v1alpha1.Param, variables []*lazy, loops []string) (d fastpath) {
	defer func() {
		if r := recover(); r != nil && r != errUnsupported { //nolint:errorlint // it is the same value
			panic(r)
		}
	}()
	c := &fastpathCompiler{AST: checked, params: params, variables: variables, loops: loops}
	switch e := checked.Expr(); c.typeOf(e).Kind() {
	case types.StringKind:
		text := c.compileText(e)
		d.text, d.node = text, func(in *Input, n *jsontree.Node) bool {
			v, ok := text(in)
			if ok {
				*n = in.Nodes.Text(v)
			}
			return ok && n.Size() <= values.MaxOutput
		}
	case types.OpaqueKind:
		d.node = optionalNodeOf(c.compileOptionalText(e))
	case types.BoolKind:
		d.bool = c.compileBool(e)
		d.text, d.node = convertedFunc(d.bool, strconv.FormatBool), asNode(d.bool, jsontree.Bool)
	case types.IntKind:
		get := c.compileInt(e)
		d.text, d.node = convertedFunc(get, formatInt), asNode(get, jsontree.Int)
	}
	return d
}

func formatInt(i int64) string { return strconv.FormatInt(i, 10) }

func asNode[T any](get func(*Input) (T, bool), node func(T) jsontree.Node) func(*Input, *jsontree.Node) bool {
	return func(in *Input, n *jsontree.Node) bool {
		v, ok := get(in)
		*n = node(v)
		return ok
	}
}

func (c *fastpathCompiler) typeOf(e ast.Expr) *types.Type { return c.GetType(e.ID()) }

func (c *fastpathCompiler) isKind(e ast.Expr, kind types.Kind) bool {
	return c.typeOf(e).Kind() == kind
}

// splitCall splits a call into the function and its arguments. The target of a member function is the
// first argument.
func splitCall(e ast.Expr) (function string, args []ast.Expr) {
	if e.Kind() != ast.CallKind {
		return "", nil
	}
	c := e.AsCall()
	if c.IsMemberFunction() {
		return c.FunctionName(), append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.FunctionName(), c.Args()
}

// loopOf returns the depth of a loop with that variable, or -1.
func (c *fastpathCompiler) loopOf(name string) int {
	if c.localIndex(name) >= 0 {
		return -1
	}
	return slices.Index(c.loops, name)
}

// paramOf returns a function for the value of a parameter or a variable, if e is only that.
func paramOf[T any](c *fastpathCompiler, e ast.Expr) func(*Input) (T, bool) {
	if e.Kind() == ast.IdentKind {
		if i := c.loopOf(e.AsIdent()); i >= 0 {
			return func(in *Input) (T, bool) { v, ok := in.loops[i].value.(T); return v, ok }
		}
		return nil
	}
	of, name := SplitSelect(e)
	if of == "variables" && c.localIndex(of) < 0 {
		for _, x := range c.variables {
			if x.name == name {
				return func(in *Input) (T, bool) {
					value, err := x.evalOnce(in)
					v, ok := value.(T)
					return v, ok && err == nil
				}
			}
		}
	}
	if of != "params" || c.localIndex(of) >= 0 {
		return nil
	}
	for i := range c.params {
		if c.params[i].Name == name {
			return func(in *Input) (v T, ok bool) {
				if i < len(in.values) && in.values[i].Name == name {
					v, ok = in.values[i].CEL().(T)
				}
				return v, ok
			}
		}
	}
	return nil
}

func readableText(text string) (string, bool) { return text, len(text) <= maxFastText }

// compileText compiles an expression of type string.
func (c *fastpathCompiler) compileText(e ast.Expr) textFunc {
	if text, ok := StringLiteral(e); ok {
		return func(*Input) (string, bool) { return text, true }
	}
	if get := paramOf[types.String](c, e); get != nil {
		return func(in *Input) (string, bool) { v, ok := get(in); return string(v), ok && len(v) <= values.MaxText }
	}
	switch of, name := SplitSelect(e); {
	case c.localIndex(of) >= 0:
	case of == "ns" && name == "name":
		return func(in *Input) (string, bool) { return in.Namespace.Name, true }
	case of == request.AccountVariable && name == "name":
		return func(in *Input) (string, bool) { return in.accountOrEmpty().Name, true }
	case of == "request" && name == "operation":
		return func(in *Input) (string, bool) { return in.Request.Operation, true }
	case of == "request" && name == "username":
		return func(in *Input) (string, bool) { return readableText(in.Request.Username) }
	}
	switch e.Kind() {
	case ast.IdentKind:
		return textOfNode(c.compileIdent(e.AsIdent()), nil)
	case ast.SelectKind:
		if c.isKind(e.AsSelect().Operand(), types.MapKind) {
			return requiredText(c.compileLookup(e.AsSelect().Operand()), constantText(e.AsSelect().FieldName()))
		}
		get, f := c.compileField(e)
		return textOfNode(get, f)
	case ast.CallKind:
		return c.compileTextCall(e)
	}
	panic(errUnsupported)
}

func constantText(text string) textFunc { return func(*Input) (string, bool) { return text, true } }

// textOfNode returns a function for a node's string. An absent field may also have one, see
// [getField].
func textOfNode(get nodeFunc, f *jsontree.StructField) textFunc {
	empty := f != nil && f.Type.Kind() == reflect.String && !f.OmitEmpty
	return func(in *Input) (string, bool) {
		n, ok := get(in)
		switch {
		case !ok:
			return "", false
		case n == nil:
			return "", empty
		case n.Kind() != jsontree.String:
			return "", false
		}
		return readableText(n.Text())
	}
}

// requiredText returns a function for the result of a lookup that must find a value.
func requiredText(get lookupFunc, key textFunc) textFunc {
	return func(in *Input) (string, bool) {
		k, ok := key(in)
		if !ok {
			return "", false
		}
		v, found, ok := get(in, k)
		return v, found && ok
	}
}

func (c *fastpathCompiler) compileTextCall(e ast.Expr) textFunc {
	function, args := splitCall(e)
	switch {
	case function == operators.Index && c.isKind(args[0], types.MapKind) && c.isKind(args[1], types.StringKind):
		return requiredText(c.compileLookup(args[0]), c.compileText(args[1]))
	case function == "orValue":
		return orValue(c.compileOptionalText(args[0]), c.compileText(args[1]))
	case function == operators.Conditional:
		return conditionalFunc(c.compileBool(args[0]), c.compileText(args[1]), c.compileText(args[2]))
	case function == operators.Add:
		return concatTexts(c.compileText(args[0]), c.compileText(args[1]))
	case function == overloads.TypeConvertString:
		return c.compileToText(args[0])
	}
	panic(errUnsupported)
}

func orValue(get optionalText, otherwise textFunc) textFunc {
	return func(in *Input) (string, bool) {
		v, found, ok := get(in)
		if !ok || found {
			return v, ok
		}
		return otherwise(in)
	}
}

func conditionalFunc[T any](condition boolFunc, yes, no func(*Input) (T, bool)) func(*Input) (T, bool) {
	return func(in *Input) (v T, ok bool) {
		switch holds, ok := condition(in); {
		case !ok:
			return v, false
		case holds:
			return yes(in)
		}
		return no(in)
	}
}

func concatTexts(left, right textFunc) textFunc {
	return func(in *Input) (string, bool) {
		a, ok1 := left(in)
		b, ok2 := right(in)
		if !ok1 || !ok2 || len(a)+len(b) > maxFastText {
			return "", false
		}
		return a + b, true
	}
}

// compileToText compiles string(e).
func (c *fastpathCompiler) compileToText(e ast.Expr) textFunc {
	switch c.typeOf(e).Kind() {
	case types.StringKind:
		return c.compileText(e)
	case types.IntKind:
		return convertedFunc(c.compileInt(e), formatInt)
	case types.BoolKind:
		return convertedFunc(c.compileBool(e), strconv.FormatBool)
	case types.DoubleKind:
		if get := paramOf[types.Double](c, e); get != nil {
			return convertedFunc(get, func(f types.Double) string { return values.TextOf(f.ConvertToType(types.StringType)) })
		}
	}
	panic(errUnsupported)
}

func convertedFunc[T, V any](get func(*Input) (T, bool), convert func(T) V) func(*Input) (V, bool) {
	return func(in *Input) (v V, ok bool) {
		from, ok := get(in)
		if ok {
			v = convert(from)
		}
		return v, ok
	}
}

// compileInt compiles an expression of type int.
func (c *fastpathCompiler) compileInt(e ast.Expr) intFunc {
	if get := paramOf[types.Int](c, e); get != nil {
		return func(in *Input) (int64, bool) { v, ok := get(in); return int64(v), ok }
	}
	switch e.Kind() {
	case ast.LiteralKind:
		i, ok := e.AsLiteral().(types.Int)
		return func(*Input) (int64, bool) { return int64(i), ok }
	case ast.SelectKind:
		get, f := c.compileField(e)
		zero := f.Type.Kind() == reflect.Int32 && !f.OmitEmpty
		return func(in *Input) (int64, bool) {
			n, ok := get(in)
			if !ok || n == nil {
				return 0, ok && zero
			}
			i, err := strconv.ParseInt(n.String(), 10, 64)
			return i, err == nil && n.Kind() == jsontree.Number
		}
	case ast.CallKind:
		switch function, args := splitCall(e); {
		case function == operators.Conditional:
			return conditionalFunc(c.compileBool(args[0]), c.compileInt(args[1]), c.compileInt(args[2]))
		case function == overloads.Size && c.isKind(args[0], types.StringKind):
			return convertedFunc(c.compileText(args[0]), func(text string) int64 { return int64(utf8.RuneCountInString(text)) })
		case function == overloads.Size && c.isKind(args[0], types.ListKind):
			return convertedFunc(c.compileNode(args[0]), func(n *jsontree.Node) int64 { return int64(len(n.Items())) })
		}
	}
	panic(errUnsupported)
}

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
