// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"slices"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// This file has the functions of fastpath.go that read the pod and the namespace.

// hasReadableSize reports whether CEL may read an object or a list of this length.
func hasReadableSize(n *jsontree.Node) bool {
	return len(n.Members()) <= values.MaxItems && len(n.Items()) <= values.MaxItems
}

// compileNode compiles an expression whose value is an object of a known type, a map or a list. If the
// value is absent but reads as empty, it is a node without a kind.
func (c *fastpathCompiler) compileNode(e ast.Expr) nodeFunc {
	want := jsontree.Object
	switch c.typeOf(e).Kind() {
	case types.ListKind:
		want = jsontree.Array
	case types.StructKind, types.MapKind:
	default:
		panic(errUnsupported)
	}
	var get nodeFunc
	var f *jsontree.StructField
	switch e.Kind() {
	case ast.IdentKind:
		get = c.compileIdent(e.AsIdent())
	case ast.SelectKind:
		get, f = c.compileField(e)
	default:
		panic(errUnsupported)
	}
	empty := f != nil && values.ReadsAsEmpty(f.Type.Kind())
	return func(in *Input) (*jsontree.Node, bool) {
		switch n, ok := get(in); {
		case !ok:
			return nil, false
		case n == nil:
			return nil, empty
		default:
			return n, n.Kind() == want && hasReadableSize(n)
		}
	}
}

// compileIdent compiles a variable that is JSON.
func (c *fastpathCompiler) compileIdent(name string) nodeFunc {
	switch i := c.localIndex(name); {
	case i >= 0:
		return func(in *Input) (*jsontree.Node, bool) { return in.locals[i], in.locals[i] != nil }
	case c.loopOf(name) >= 0:
		i := c.loopOf(name)
		return func(in *Input) (*jsontree.Node, bool) { return values.ObjectNode(in.loops[i].value) }
	case name == "pod":
		return func(in *Input) (*jsontree.Node, bool) { return in.Pod, in.Pod != nil }
	case name == "container":
		return func(in *Input) (*jsontree.Node, bool) { return in.container, in.container != nil }
	}
	panic(errUnsupported)
}

// localIndex returns the index of a loop's variable, or -1.
func (c *fastpathCompiler) localIndex(name string) int {
	for i, local := range slices.Backward(c.locals) {
		if local == name {
			return i
		}
	}
	return -1
}

// compileField compiles x.f, with x an object of a known type. The function returns the unchecked value of
// the field, or nil if it is absent.
func (c *fastpathCompiler) compileField(e ast.Expr) (nodeFunc, *jsontree.StructField) {
	operand, name := e.AsSelect().Operand(), e.AsSelect().FieldName()
	f, ok := values.Field(c.typeOf(operand).TypeName(), name)
	if !c.isKind(operand, types.StructKind) || !ok {
		panic(errUnsupported)
	}
	get := c.compileNode(operand)
	return func(in *Input) (*jsontree.Node, bool) {
		n, ok := get(in)
		return n.Get(name), ok
	}, &f
}

// compileHas compiles has(x.f).
func (c *fastpathCompiler) compileHas(e ast.Expr) boolFunc {
	if operand := e.AsSelect().Operand(); c.isKind(operand, types.MapKind) {
		return hasOptional(optionalLookup(c.compileLookup(operand), constantText(e.AsSelect().FieldName())))
	}
	get, _ := c.compileField(e)
	return func(in *Input) (bool, bool) { n, ok := get(in); return n != nil, ok }
}

// compileLookup compiles a map of strings, for example the labels of the pod or the namespace.
func (c *fastpathCompiler) compileLookup(e ast.Expr) lookupFunc {
	if t := c.typeOf(e); t.Kind() != types.MapKind || t.Parameters()[0].Kind() != types.StringKind || t.Parameters()[1].Kind() != types.StringKind {
		panic(errUnsupported)
	}
	if of, name := SplitSelect(e); (of == "ns" || of == request.AccountVariable) && c.localIndex(of) < 0 {
		maps := func(in *Input) (labels, annotations map[string]string) {
			return in.Namespace.Labels, in.Namespace.Annotations
		}
		if of == request.AccountVariable {
			maps = func(in *Input) (labels, annotations map[string]string) {
				return in.accountOrEmpty().Labels, in.accountOrEmpty().Annotations
			}
		}
		return func(in *Input, key string) (string, bool, bool) {
			m, annotations := maps(in)
			if name == "annotations" {
				m = annotations
			}
			v, found := m[key]
			return v, found, len(m) <= values.MaxItems && len(v) <= maxFastText && utf8.ValidString(v) && utf8.ValidString(key)
		}
	}
	get := c.compileNode(e)
	return func(in *Input, key string) (string, bool, bool) {
		n, ok := get(in)
		return memberText(n, ok, key)
	}
}

func memberText(of *jsontree.Node, ok bool, key string) (text string, found, readable bool) {
	n := of.Get(key)
	if !ok || n == nil {
		return "", false, ok
	}
	text = n.Text()
	return text, true, n.Kind() == jsontree.String && len(text) <= maxFastText
}

// compileOptionalText compiles m[?key], x.?f, and what when(condition, value) stands for.
func (c *fastpathCompiler) compileOptionalText(e ast.Expr) optionalText {
	function, args := splitCall(e)
	switch {
	case function == operators.Conditional:
		return conditionalOptional(c.compileBool(args[0]), c.compileOptionalText(args[1]), c.compileOptionalText(args[2]))
	case function == "optional.of" && c.isKind(args[0], types.StringKind):
		text := c.compileText(args[0])
		return func(in *Input) (string, bool, bool) { v, ok := text(in); return v, true, ok }
	case function == "optional.none":
		return func(*Input) (string, bool, bool) { return "", false, true }
	case function == operators.OptIndex && c.isKind(args[0], types.MapKind) && c.isKind(args[1], types.StringKind):
		return optionalLookup(c.compileLookup(args[0]), c.compileText(args[1]))
	case function == operators.OptIndex && c.isKind(args[1], types.StringKind) && c.isOptionalOf(args[0], types.MapKind) && c.isOptionalOf(e, types.StringKind):
		get, key := c.compileOptionalNode(args[0]), c.compileText(args[1])
		return func(in *Input) (string, bool, bool) {
			n, found, ok := get(in)
			k, ok2 := key(in)
			if !found || !ok || !ok2 || n.Kind() != jsontree.Object || !hasReadableSize(n) {
				return "", false, ok && ok2 && !found
			}
			return memberText(n, true, k)
		}
	}
	if !c.isOptionalOf(e, types.StringKind) {
		panic(errUnsupported)
	}
	if get := c.compileOptionalParam(e); get != nil {
		return get
	}
	get := c.compileOptionalNode(e)
	return func(in *Input) (string, bool, bool) {
		n, found, ok := get(in)
		if !found || !ok {
			return "", false, ok
		}
		text, ok := readableText(n.Text())
		return text, true, ok && n.Kind() == jsontree.String
	}
}

func conditionalOptional(condition boolFunc, yes, no optionalText) optionalText {
	return func(in *Input) (string, bool, bool) {
		switch holds, ok := condition(in); {
		case !ok:
			return "", false, false
		case holds:
			return yes(in)
		}
		return no(in)
	}
}

// compileOptionalParam compiles params.?x for a parameter that is a string. It returns nil for other
// expressions.
func (c *fastpathCompiler) compileOptionalParam(e ast.Expr) optionalText {
	function, args := splitCall(e)
	if function != operators.OptSelect || args[0].Kind() != ast.IdentKind || args[0].AsIdent() != "params" || c.localIndex("params") >= 0 {
		return nil
	}
	name, _ := StringLiteral(args[1])
	for i := range c.params {
		if c.params[i].Name == name {
			return func(in *Input) (v string, found, ok bool) {
				if i >= len(in.values) || in.values[i].Name != name {
					return "", false, false
				}
				if in.values[i].CEL() == nil {
					return "", false, true
				}
				v = values.TextOf(in.values[i].CEL())
				return v, true, len(v) <= values.MaxText
			}
		}
	}
	return nil
}

// optionalNodeOf returns a function that sets a node to a value, or to a node without a kind.
func optionalNodeOf(get optionalText) func(*Input, *jsontree.Node) bool {
	return func(in *Input, n *jsontree.Node) bool {
		v, found, ok := get(in)
		if *n = (jsontree.Node{}); found && ok {
			*n = in.Nodes.Text(v)
		}
		return ok && n.Size() <= values.MaxOutput
	}
}

// isOptionalOf reports whether an optional's value is of that kind.
func (c *fastpathCompiler) isOptionalOf(optional ast.Expr, kind types.Kind) bool {
	t := c.typeOf(optional)
	return t.Kind() == types.OpaqueKind && len(t.Parameters()) == 1 && t.Parameters()[0].Kind() == kind
}

func optionalLookup(get lookupFunc, key textFunc) optionalText {
	return func(in *Input) (string, bool, bool) {
		k, ok := key(in)
		if !ok {
			return "", false, false
		}
		return get(in, k)
	}
}

// compileOptionalNode compiles x.?f. Here x is an object of a known type, or again an expression of this
// form.
func (c *fastpathCompiler) compileOptionalNode(e ast.Expr) optionalNode {
	function, args := splitCall(e)
	if function != operators.OptSelect {
		panic(errUnsupported)
	}
	name, ok := StringLiteral(args[1])
	if !ok {
		panic(errUnsupported)
	}
	get := c.compileOptionalObject(args[0])
	return func(in *Input) (*jsontree.Node, bool, bool) {
		n, found, ok := get(in)
		if !found || !ok {
			return nil, false, ok
		}
		if n.Kind() != jsontree.Object || !hasReadableSize(n) {
			return nil, false, false
		}
		n = n.Get(name)
		return n, n != nil, true
	}
}

// compileOptionalObject compiles the object of [fastpathCompiler.compileOptionalNode].
func (c *fastpathCompiler) compileOptionalObject(e ast.Expr) optionalNode {
	if c.isKind(e, types.StructKind) {
		get := c.compileNode(e)
		return func(in *Input) (*jsontree.Node, bool, bool) { n, ok := get(in); return n, n != nil, ok }
	}
	if !c.isOptionalOf(e, types.StructKind) {
		panic(errUnsupported)
	}
	return c.compileOptionalNode(e)
}

// compileIn compiles a test whether a map, a list literal or another list of strings contains a string.
func (c *fastpathCompiler) compileIn(item, of ast.Expr) boolFunc {
	if !c.isKind(item, types.StringKind) {
		panic(errUnsupported)
	}
	text := c.compileText(item)
	t := c.typeOf(of)
	switch {
	case t.Kind() == types.MapKind:
		return hasOptional(optionalLookup(c.compileLookup(of), text))
	case of.Kind() == ast.ListKind:
		var all []string
		for _, e := range of.AsList().Elements() {
			value, ok := StringLiteral(e)
			if !ok {
				panic(errUnsupported)
			}
			all = append(all, value)
		}
		return convertedFunc(text, func(v string) bool { return slices.Contains(all, v) })
	case t.Kind() == types.ListKind && t.Parameters()[0].Kind() == types.StringKind:
		return inList(text, c.compileNode(of))
	}
	panic(errUnsupported)
}

func inList(text textFunc, list nodeFunc) boolFunc {
	return func(in *Input) (bool, bool) {
		v, ok1 := text(in)
		n, ok2 := list(in)
		if !ok1 || !ok2 {
			return false, false
		}
		items, there := n.Items(), false
		for i := range items {
			if items[i].Kind() != jsontree.String || !in.countSteps(1) {
				return false, false
			}
			item, ok := readableText(items[i].Text())
			if !ok {
				return false, false
			}
			there = there || item == v
		}
		return there, true
	}
}

// compileQuantifier compiles list.exists(x, condition) and list.all(x, condition), after their macros are
// expanded.
func (c *fastpathCompiler) compileQuantifier(e ast.ComprehensionExpr) boolFunc {
	begin, ok := e.AccuInit(), e.AccuInit().Kind() == ast.LiteralKind
	if !ok || e.HasIterVar2() || e.Result().Kind() != ast.IdentKind || e.Result().AsIdent() != e.AccuVar() || len(c.locals) == maxLocals {
		panic(errUnsupported)
	}
	function, args := splitCall(e.LoopStep())
	end := function == operators.LogicalOr
	if (!end && function != operators.LogicalAnd) || begin.AsLiteral() != types.Bool(!end) || args[0].Kind() != ast.IdentKind || args[0].AsIdent() != e.AccuVar() {
		panic(errUnsupported)
	}
	if !c.isKind(e.IterRange(), types.ListKind) {
		panic(errUnsupported)
	}
	list := c.compileNode(e.IterRange())
	at := len(c.locals)
	c.locals = append(c.locals, e.IterVar())
	test := c.compileBool(args[1])
	c.locals = c.locals[:at]
	return func(in *Input) (bool, bool) {
		n, ok := list(in)
		if !ok {
			return false, false
		}
		items := n.Items()
		for i := range items {
			if !in.countSteps(1) {
				return false, false
			}
			in.locals[at] = &items[i]
			if v, ok := test(in); !ok || v == end {
				return v, ok
			}
		}
		return !end, true
	}
}
