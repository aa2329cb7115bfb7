// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// placeOf returns the place that an expression reads.
func (s *search) placeOf(w *world, e ast.Expr, sc *scope) (path, bool) {
	if v := s.expression.Variable(e); v != nil {
		return s.searchFor(v).placeOf(w, v.AST().Expr(), nil)
	}
	switch e.Kind() {
	case ast.IdentKind:
		v := sc.findScope(e.AsIdent())
		switch {
		case v == nil:
			return path{e.AsIdent()}, slices.Contains([]string{"pod", "ns", accountVariable, "request"}, e.AsIdent())
		case v.expr != nil:
			return s.placeOf(w, v.expr, v.in)
		}
		return v.place, v.place != nil && !v.key
	case ast.SelectKind:
		p, ok := s.placeOf(w, e.AsSelect().Operand(), sc)
		if ok && len(p) == 1 && p[0] == accountVariable && e.AsSelect().FieldName() == "name" {
			return path{"pod", "spec", "serviceAccountName"}, true
		}
		return p.childPath(e.AsSelect().FieldName()), ok
	case ast.CallKind:
		call := e.AsCall()
		switch name := call.FunctionName(); name {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			p, ok := s.placeOf(w, call.Args()[0], sc)
			switch key := s.evalExpr(w, call.Args()[1], sc).(type) {
			case types.String:
				return p.childPath(string(key)), ok
			case types.Int:
				return p.childPath(int(key)), ok && key >= 0 && key < maxList
			}
		case "orValue", "value", "or":
			return s.placeOf(w, call.Target(), sc)
		}
	}
	return nil, false
}

// assignValue continues with worlds in which an expression may have a value.
func (s *search) assignValue(w *world, e ast.Expr, value ref.Val, sc *scope, next then) bool {
	if s.steps--; s.steps < 0 {
		return false
	}
	if got := s.evalExpr(w, e, sc); got != nil && got.Equal(value) == types.True {
		return next(w)
	}
	if optional, ok := value.(*types.Optional); ok {
		if !optional.HasValue() {
			return s.meetPresence(w, e, false, sc, next)
		}
		value = optional.GetValue()
	}
	if name, ok := paramOf(e); ok {
		text, ok := s.template.ParamText(name, value)
		return ok && s.setParam(w, name, text, next)
	}
	if v := s.expression.Variable(e); v != nil {
		return s.searchFor(v).assignValue(w, v.AST().Expr(), value, nil, next)
	}
	if p, ok := s.placeOf(w, e, sc); ok {
		native, ok := nativeValue(value)
		return ok && next(w.withValue(p, native))
	}
	switch e.Kind() {
	case ast.IdentKind:
		return s.assignVariable(w, sc.findScope(e.AsIdent()), value, next)
	case ast.CallKind:
		return s.assignCall(w, e.AsCall(), value, sc, next)
	}
	return false
}

// assignVariable gives a macro's variable a value. It assigns the value to the variable's
// expression, renames the member, or replaces the whole split string.
func (s *search) assignVariable(w *world, v *scope, value ref.Val, next then) bool {
	text, isText := value.(types.String)
	switch {
	case v == nil:
		return false
	case v.expr != nil:
		return s.assignValue(w, v.expr, value, v.in, next)
	case v.key && isText:
		at := v.place[:len(v.place)-1].childPath(string(text))
		return next(w.withValue(v.place, nil).withValue(at, anyOf(at)))
	case v.text != nil:
		return s.assignValue(w, v.text, value, v.outer, next)
	}
	return false
}

func (s *search) assignCall(w *world, call ast.CallExpr, value ref.Val, sc *scope, next then) bool {
	args := call.Args()
	text, isText := value.(types.String)
	switch name := call.FunctionName(); {
	case name == operators.Conditional:
		choose := func(condition bool, e ast.Expr) bool {
			return s.meetCondition(w, args[0], condition, sc, func(w *world) bool { return s.assignValue(w, e, value, sc, next) })
		}
		return choose(true, args[1]) || choose(false, args[2])
	case name == "size":
		n, ok := value.(types.Int)
		return ok && s.resizeValue(w, append(slices.Clone(args), call.Target())[0], int(n), sc, next)
	case name == operators.Add && isText:
		return s.assignSum(w, args, string(text), sc, next)
	case name == operators.Index:
		i, isInt := s.evalExpr(w, args[1], sc).(types.Int)
		return isInt && isText && s.setPart(w, args[0], int(i), string(text), sc, next)
	case slices.Contains([]string{"int", "double", "uint", "bool"}, name):
		return s.assignValue(w, args[0], types.String(fmt.Sprint(value.Value())), sc, next)
	case name == "string" && isText:
		for _, t := range []ref.Type{types.StringType, types.IntType, types.DoubleType, types.BoolType} {
			if v := text.ConvertToType(t); !types.IsError(v) && s.assignValue(w, args[0], v, sc, next) {
				return true
			}
		}
	case name == "reverse" && isText:
		runes := []rune(string(text))
		slices.Reverse(runes)
		return s.assignValue(w, call.Target(), types.String(string(runes)), sc, next)
	case call.IsMemberFunction():
		return s.assignValue(w, call.Target(), value, sc, next) // for example lowerAscii, trim, replace
	}
	return false
}

// assignSum makes a + b equal a string that begins with the value of a, or ends with that of b.
func (s *search) assignSum(w *world, args []ast.Expr, text string, sc *scope, next then) bool {
	if a, ok := s.evalExpr(w, args[0], sc).(types.String); ok && strings.HasPrefix(text, string(a)) && s.assignValue(w, args[1], types.String(text[len(a):]), sc, next) {
		return true
	}
	b, ok := s.evalExpr(w, args[1], sc).(types.String)
	return ok && strings.HasSuffix(text, string(b)) && s.assignValue(w, args[0], types.String(text[:len(text)-len(b)]), sc, next)
}

// setPart makes string.split(separator)[i] equal a string.
func (s *search) setPart(w *world, e ast.Expr, i int, value string, sc *scope, next then) bool { //nolint:revive // the parameters go through the whole search
	target, separator, ok := s.findSplit(w, e, sc)
	if !ok || i < 0 || i >= maxList {
		return false
	}
	now, _ := s.evalExpr(w, target, sc).(types.String)
	parts := strings.Split(string(now), separator)
	for len(parts) <= i {
		parts = append(parts, some)
	}
	parts[i] = value
	return s.assignValue(w, target, types.String(strings.Join(parts, separator)), sc, next)
}

// findSplit returns the string and the separator of string.split(separator). A parameter of type list is
// split too.
func (s *search) findSplit(w *world, e ast.Expr, sc *scope) (text ast.Expr, separator string, ok bool) {
	if name, ok := paramOf(e); ok && s.expression.AST().GetType(e.ID()).Kind() == types.ListKind {
		return e, ",", !slices.Contains(s.fixed, s.template.Name+"."+name)
	}
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "split" {
		return nil, "", false
	}
	sep, ok := s.evalExpr(w, e.AsCall().Args()[0], sc).(types.String)
	return e.AsCall().Target(), string(sep), ok
}

// resizeValue gives a list, an object or a string a size.
func (s *search) resizeValue(w *world, e ast.Expr, n int, sc *scope, next then) bool {
	if s.steps--; s.steps < 0 || e == nil || n < 0 || n > maxList {
		return false
	}
	if s.expression.AST().GetType(e.ID()).Kind() == types.StringKind {
		return s.assignValue(w, e, types.String(strings.Repeat("a", n)), sc, next)
	}
	got, ok := s.evalExpr(w, e, sc).(traits.Sizer)
	if ok && int(got.Size().(types.Int)) == n {
		return next(w)
	}
	if name, isParam := paramOf(e); isParam {
		return s.setParam(w, name, s.template.ParamOfSize(name, n), next)
	}
	if !ok || int(got.Size().(types.Int)) < n {
		return s.growList(w, e, sc, func(w *world, item scope) bool {
			if item.key { // member names must differ
				of := item.place[:len(item.place)-1]
				members, _ := w.valueAt(of).(map[string]any)
				at := of.childPath(fmt.Sprintf("%s-%d", some, len(members)))
				w = w.withValue(item.place, nil).withValue(at, anyOf(at))
			}
			return s.resizeValue(w, e, n, sc, next)
		})
	}
	p, ok := s.placeOf(w, e, sc)
	if list, isList := w.valueAt(p).([]any); ok && isList {
		return next(w.withValue(p, list[:n]))
	}
	return ok && n == 0 && next(w.withValue(p, nil))
}

func (s *search) isMap(e ast.Expr) bool {
	t := s.expression.AST().GetType(e.ID())
	return t.Kind() == types.MapKind || t.Kind() == types.OpaqueKind && len(t.Parameters()) == 1 && t.Parameters()[0].Kind() == types.MapKind
}

// nativeValue converts a value to its JSON form.
func nativeValue(value ref.Val) (any, bool) {
	switch v := value.(type) {
	case types.String, types.Bool, types.Int, types.Uint, types.Double:
		return v.Value(), true
	case traits.Lister:
		list := []any{}
		for _, item := range listElements(v) {
			n, ok := nativeValue(item)
			if !ok {
				return nil, false
			}
			list = append(list, n)
		}
		return list, true
	case traits.Mapper:
		m := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			n, ok := nativeValue(v.Get(key))
			if name, isText := key.(types.String); ok && isText {
				m[string(name)] = n
			}
		}
		return m, true
	}
	return nil, false
}
