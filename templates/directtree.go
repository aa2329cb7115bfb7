// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// This file has the functions of direct.go that read the pod and the namespace.

// small reports whether CEL may read an object or a list of this length.
func small(n *jsontree.Node) bool { return len(n.Members()) <= maxItems && len(n.Items()) <= maxItems }

// node compiles an expression whose value is an object of a known type, a map or a list. If the
// value is absent but reads as empty, it is a node without a kind.
func (c *directly) node(e ast.Expr) nodeFunc {
	want := jsontree.Object
	switch c.typeOf(e).Kind() {
	case types.ListKind:
		want = jsontree.Array
	case types.StructKind, types.MapKind:
	default:
		panic(errUnsupported)
	}
	var get nodeFunc
	var f *structField
	switch e.Kind() {
	case ast.IdentKind:
		get = c.ident(e.AsIdent())
	case ast.SelectKind:
		get, f = c.field(e)
	default:
		panic(errUnsupported)
	}
	empty := f != nil && readsAsEmpty(f.json.Type.Kind())
	return func(in *Input) (*jsontree.Node, bool) {
		switch n, ok := get(in); {
		case !ok:
			return nil, false
		case n == nil:
			return nil, empty
		default:
			return n, n.Kind() == want && small(n)
		}
	}
}

// ident compiles a variable that is JSON.
func (c *directly) ident(name string) nodeFunc {
	switch i := c.local(name); {
	case i >= 0:
		return func(in *Input) (*jsontree.Node, bool) { return in.locals[i], in.locals[i] != nil }
	case c.loopOf(name) >= 0:
		i := c.loopOf(name)
		return func(in *Input) (*jsontree.Node, bool) { v, ok := in.loops[i].value.(object); return v.node, ok }
	case name == "pod":
		return func(in *Input) (*jsontree.Node, bool) { return in.Pod, in.Pod != nil }
	case name == "container":
		return func(in *Input) (*jsontree.Node, bool) { return in.container, in.container != nil }
	}
	panic(errUnsupported)
}

// local returns the index of a loop's variable, or -1.
func (c *directly) local(name string) int {
	for i, local := range slices.Backward(c.locals) {
		if local == name {
			return i
		}
	}
	return -1
}

// field compiles x.f, with x an object of a known type. The function returns the unchecked value of
// the field, or nil if it is absent.
func (c *directly) field(e ast.Expr) (nodeFunc, *structField) {
	operand, name := e.AsSelect().Operand(), e.AsSelect().FieldName()
	f := c.structs[c.typeOf(operand).TypeName()][name]
	if !c.is(operand, types.StructKind) || f == nil {
		panic(errUnsupported)
	}
	get := c.node(operand)
	return func(in *Input) (*jsontree.Node, bool) {
		n, ok := get(in)
		return n.Get(name), ok
	}, f
}

// has compiles has(x.f).
func (c *directly) has(e ast.Expr) boolFunc {
	if operand := e.AsSelect().Operand(); c.is(operand, types.MapKind) {
		return exists(optionally(c.lookup(operand), constant(e.AsSelect().FieldName())))
	}
	get, _ := c.field(e)
	return func(in *Input) (bool, bool) { n, ok := get(in); return n != nil, ok }
}

// lookup compiles a map of strings, for example the labels of the pod or the namespace.
func (c *directly) lookup(e ast.Expr) lookupFunc {
	if t := c.typeOf(e); t.Kind() != types.MapKind || t.Parameters()[0].Kind() != types.StringKind || t.Parameters()[1].Kind() != types.StringKind {
		panic(errUnsupported)
	}
	if of, name := selected(e); (of == "ns" || of == request.AccountVariable) && c.local(of) < 0 {
		maps := func(in *Input) (labels, annotations map[string]string) {
			return in.Namespace.Labels, in.Namespace.Annotations
		}
		if of == request.AccountVariable {
			maps = func(in *Input) (labels, annotations map[string]string) {
				return in.account().Labels, in.account().Annotations
			}
		}
		return func(in *Input, key string) (string, bool, bool) {
			m, annotations := maps(in)
			if name == "annotations" {
				m = annotations
			}
			v, found := m[key]
			return v, found, len(m) <= maxItems && len(v) <= maxDirect && utf8.ValidString(v) && utf8.ValidString(key)
		}
	}
	get := c.node(e)
	return func(in *Input, key string) (string, bool, bool) {
		n, ok := get(in)
		return member(n, ok, key)
	}
}

func member(of *jsontree.Node, ok bool, key string) (text string, found, readable bool) {
	n := of.Get(key)
	if !ok || n == nil {
		return "", false, ok
	}
	text = n.Text()
	return text, true, n.Kind() == jsontree.String && len(text) <= maxDirect
}

// optionalText compiles m[?key] and x.?f.
func (c *directly) optionalText(e ast.Expr) optionalText {
	function, args := call(e)
	switch {
	case function == operators.OptIndex && c.is(args[0], types.MapKind) && c.is(args[1], types.StringKind):
		return optionally(c.lookup(args[0]), c.text(args[1]))
	case function == operators.OptIndex && c.is(args[1], types.StringKind) && c.gives(args[0], types.MapKind) && c.gives(e, types.StringKind):
		get, key := c.optionalNode(args[0]), c.text(args[1])
		return func(in *Input) (string, bool, bool) {
			n, found, ok := get(in)
			k, ok2 := key(in)
			if !found || !ok || !ok2 || n.Kind() != jsontree.Object || !small(n) {
				return "", false, ok && ok2 && !found
			}
			return member(n, true, k)
		}
	}
	if !c.gives(e, types.StringKind) {
		panic(errUnsupported)
	}
	if get := c.optionalParam(e); get != nil {
		return get
	}
	get := c.optionalNode(e)
	return func(in *Input) (string, bool, bool) {
		n, found, ok := get(in)
		if !found || !ok {
			return "", false, ok
		}
		text, ok := readable(n.Text())
		return text, true, ok && n.Kind() == jsontree.String
	}
}

// optionalParam compiles params.?x for a parameter that is a string. It returns nil for other
// expressions.
func (c *directly) optionalParam(e ast.Expr) optionalText {
	function, args := call(e)
	if function != operators.OptSelect || args[0].Kind() != ast.IdentKind || args[0].AsIdent() != "params" || c.local("params") >= 0 {
		return nil
	}
	name, _ := literal(args[1])
	for i := range c.params {
		if c.params[i].Name == name {
			return func(in *Input) (v string, found, ok bool) {
				if i >= len(in.values) || in.values[i].Name != name {
					return "", false, false
				}
				if in.values[i].cel == nil {
					return "", false, true
				}
				v = textOf(in.values[i].cel)
				return v, true, len(v) <= maxText
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
		return ok && n.Size() <= maxOutput
	}
}

// gives reports whether an optional's value is of that kind.
func (c *directly) gives(optional ast.Expr, kind types.Kind) bool {
	t := c.typeOf(optional)
	return t.Kind() == types.OpaqueKind && len(t.Parameters()) == 1 && t.Parameters()[0].Kind() == kind
}

func optionally(get lookupFunc, key textFunc) optionalText {
	return func(in *Input) (string, bool, bool) {
		k, ok := key(in)
		if !ok {
			return "", false, false
		}
		return get(in, k)
	}
}

// optionalNode compiles x.?f. Here x is an object of a known type, or again an expression of this
// form.
func (c *directly) optionalNode(e ast.Expr) optionalNode {
	function, args := call(e)
	if function != operators.OptSelect {
		panic(errUnsupported)
	}
	name, ok := literal(args[1])
	if !ok {
		panic(errUnsupported)
	}
	get := c.optionalObject(args[0])
	return func(in *Input) (*jsontree.Node, bool, bool) {
		n, found, ok := get(in)
		if !found || !ok {
			return nil, false, ok
		}
		if n.Kind() != jsontree.Object || !small(n) {
			return nil, false, false
		}
		n = n.Get(name)
		return n, n != nil, true
	}
}

// optionalObject compiles the object of [directly.optionalNode].
func (c *directly) optionalObject(e ast.Expr) optionalNode {
	if c.is(e, types.StructKind) {
		get := c.node(e)
		return func(in *Input) (*jsontree.Node, bool, bool) { n, ok := get(in); return n, n != nil, ok }
	}
	if !c.gives(e, types.StructKind) {
		panic(errUnsupported)
	}
	return c.optionalNode(e)
}

// in compiles a test whether a map, a list literal or another list of strings contains a string.
func (c *directly) in(item, of ast.Expr) boolFunc {
	if !c.is(item, types.StringKind) {
		panic(errUnsupported)
	}
	text := c.text(item)
	t := c.typeOf(of)
	switch {
	case t.Kind() == types.MapKind:
		return exists(optionally(c.lookup(of), text))
	case of.Kind() == ast.ListKind:
		var all []string
		for _, e := range of.AsList().Elements() {
			value, ok := literal(e)
			if !ok {
				panic(errUnsupported)
			}
			all = append(all, value)
		}
		return converted(text, func(v string) bool { return slices.Contains(all, v) })
	case t.Kind() == types.ListKind && t.Parameters()[0].Kind() == types.StringKind:
		return inList(text, c.node(of))
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
			if items[i].Kind() != jsontree.String || !in.step(1) {
				return false, false
			}
			item, ok := readable(items[i].Text())
			if !ok {
				return false, false
			}
			there = there || item == v
		}
		return there, true
	}
}

// loop compiles list.exists(x, condition) and list.all(x, condition), after their macros are
// expanded.
func (c *directly) loop(e ast.ComprehensionExpr) boolFunc {
	begin, ok := e.AccuInit(), e.AccuInit().Kind() == ast.LiteralKind
	if !ok || e.HasIterVar2() || e.Result().Kind() != ast.IdentKind || e.Result().AsIdent() != e.AccuVar() || len(c.locals) == maxLocals {
		panic(errUnsupported)
	}
	function, args := call(e.LoopStep())
	end := function == operators.LogicalOr
	if (!end && function != operators.LogicalAnd) || begin.AsLiteral() != types.Bool(!end) || args[0].Kind() != ast.IdentKind || args[0].AsIdent() != e.AccuVar() {
		panic(errUnsupported)
	}
	if !c.is(e.IterRange(), types.ListKind) {
		panic(errUnsupported)
	}
	list := c.node(e.IterRange())
	at := len(c.locals)
	c.locals = append(c.locals, e.IterVar())
	test := c.bool(args[1])
	c.locals = c.locals[:at]
	return func(in *Input) (bool, bool) {
		n, ok := list(in)
		if !ok {
			return false, false
		}
		items := n.Items()
		for i := range items {
			if !in.step(1) {
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
