// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel"
)

// tracer knows the origins of expressions' values. Each expression is traced once, because variables may read each other any number
// of times.
type tracer map[*cel.Expression]*origin

// trace finds the origin of the value of an expression.
type trace struct {
	tracer

	expression *cel.Expression
	scope      *cel.Scope // of the expression
}

// locals are the variables of macros in an expression, the innermost first.
type locals struct {
	name   string
	value  *origin
	around *locals
}

// originOf returns the origin of an expression's value. Scope is that of the expression, or of an expression in more loops.
func (t tracer) originOf(e *cel.Expression, scope *cel.Scope) *origin {
	if t[e] == nil {
		t[e] = (&trace{t, e, scope}).traceExpr(e.AST().Expr(), nil)
	}
	return t[e]
}

func (t *trace) traceExpr(e ast.Expr, s *locals) *origin {
	typ := t.expression.AST().GetType(e.ID())
	switch e.Kind() {
	case ast.LiteralKind:
		return ofType(typ)
	case ast.IdentKind:
		return t.traceIdent(e.AsIdent(), typ, s)
	case ast.SelectKind:
		return t.traceSelect(e, typ, s)
	case ast.ListKind:
		return &origin{kind: fromList, typ: typ, of: t.traceItems(e.AsList(), s)}
	case ast.MapKind:
		return t.traceMap(e.AsMap(), typ, s)
	case ast.CallKind:
		return t.traceCall(e.AsCall(), typ, s)
	case ast.ComprehensionKind:
		return t.traceComprehension(e.AsComprehension(), s)
	}
	return anyOrigin(typ)
}

func (t *trace) traceIdent(name string, typ *types.Type, s *locals) *origin {
	for ; s != nil; s = s.around {
		if s.name == name {
			return s.value
		}
	}
	name = strings.TrimPrefix(name, ".") // a variable that a macro's variable hides
	if l := t.scope.Loop(name); l != nil && l.IsValue(name) {
		return t.originOf(l.List(), t.scope).elementOrigin(typ)
	}
	return ofType(typ) // pod and the like
}

func (t *trace) traceSelect(e ast.Expr, typ *types.Type, s *locals) *origin {
	operand, name := e.AsSelect().Operand(), e.AsSelect().FieldName()
	if e.AsSelect().IsTestOnly() {
		return ofType(typ)
	}
	if v := t.expression.Variable(e); v != nil {
		return t.originOf(v, t.scope)
	}
	return t.traceMember(operand, name, typ, s)
}

// traceMember returns the origin of operand.name or operand[name], which is optional if the operand is.
func (t *trace) traceMember(operand ast.Expr, name string, typ *types.Type, s *locals) *origin {
	of, optional := cel.ValueType(typ)
	value := t.traceExpr(operand, s).memberOrigin(name, of)
	if optional {
		return &origin{kind: fromOptional, typ: typ, of: value}
	}
	return value
}

func (t *trace) traceItems(list ast.ListExpr, s *locals) *origin {
	all := make([]*origin, list.Size())
	for i, item := range list.Elements() {
		if all[i] = t.traceExpr(item, s); list.IsOptional(int32(i)) { //nolint:gosec // an index
			all[i] = all[i].elementOrigin(types.DynType)
		}
	}
	return mergeOrigins(types.DynType, all...)
}

func (t *trace) traceMap(m ast.MapExpr, typ *types.Type, s *locals) *origin {
	literal, computed := &origin{kind: fromLiteral, typ: typ}, false
	for _, entry := range m.Entries() {
		e := entry.AsMapEntry()
		value := t.traceExpr(e.Value(), s)
		if e.IsOptional() {
			value = value.elementOrigin(types.DynType)
		}
		key, ok := e.Key().AsLiteral().(types.String)
		literal.keys, computed = append(literal.keys, originKey{string(key), value}), computed || !ok
	}
	if computed {
		return &origin{kind: fromMap, typ: typ, of: literal.elementOrigin(types.DynType)}
	}
	return literal
}

// traceCall knows the functions that return a part of an argument. Others make scalars, and lists of them.
func (t *trace) traceCall(call ast.CallExpr, typ *types.Type, s *locals) *origin {
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	arg := func(i int) *origin { return t.traceExpr(args[i], s) }
	isList := typ.Kind() == types.ListKind || typ.Kind() == types.DynKind
	switch name := call.FunctionName(); {
	case name == operators.Conditional:
		return mergeOrigins(typ, arg(1), arg(2))
	case name == operators.Add && isList, name == "or":
		return mergeOrigins(typ, arg(0), arg(1))
	case name == operators.Index, name == operators.OptIndex, name == operators.OptSelect:
		key, _ := cel.StringLiteral(args[1])
		return t.traceMember(args[0], key, typ, s)
	case name == "dyn":
		return arg(0)
	case name == "optional.of", name == "optional.ofNonZeroValue":
		return &origin{kind: fromOptional, typ: typ, of: arg(0)}
	case name == "optional.none":
		return mergeOrigins(typ)
	case name == "cel.@mapInsert": // of transformMap and transformMapEntry
		last := arg(len(args) - 1)
		if len(args) == 2 {
			last = last.elementOrigin(types.DynType)
		}
		return &origin{kind: fromMap, typ: typ, of: mergeOrigins(types.DynType, arg(0).elementOrigin(types.DynType), last)}
	case name == "merge":
		return mergedOrigin(typ, arg(0), arg(1))
	case name == "value":
		return arg(0).elementOrigin(typ)
	case name == "orValue":
		return mergeOrigins(typ, arg(0).elementOrigin(typ), arg(1))
	case name == "first", name == "last":
		return &origin{kind: fromOptional, typ: typ, of: arg(0).elementOrigin(types.DynType)}
	case name == "optional.unwrap", name == "unwrapOpt":
		return &origin{kind: fromList, typ: typ, of: arg(0).elementOrigin(types.DynType).elementOrigin(types.DynType)}
	case name == "flatten":
		return &origin{kind: fromList, typ: typ, of: arg(0).flattenedOrigin(types.DynType)}
	case isList && (name == "distinct" || name == "sort" || name == "reverse" || name == "slice" || name == "@sortByAssociatedKeys"):
		return arg(0)
	case cel.HasStruct(typ):
		return anyOrigin(typ)
	}
	return ofType(typ)
}

// traceComprehension traces a macro. The result of its loop can have only the origins of one turn: macros use the
// accumulated value only unchanged, or add items to it.
func (t *trace) traceComprehension(c ast.ComprehensionExpr, s *locals) *origin {
	of := t.traceExpr(c.IterRange(), s)
	inner := &locals{c.IterVar(), of.loopVariableOrigin(), s}
	if c.HasIterVar2() {
		inner = &locals{c.IterVar2(), of.elementOrigin(types.DynType), &locals{c.IterVar(), of.indexOrigin(), s}}
	}
	start := t.traceExpr(c.AccuInit(), s)
	turn := t.traceExpr(c.LoopStep(), &locals{c.AccuVar(), start, inner})
	return t.traceExpr(c.Result(), &locals{c.AccuVar(), mergeOrigins(start.typ, start, turn), s})
}
