// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"slices"
	"unicode"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// negated maps op to the operator of !(a op b), and mirrored to that of b op a.
var (
	negated = map[string]string{
		operators.Equals: operators.NotEquals, operators.NotEquals: operators.Equals, operators.Less: operators.GreaterEquals,
		operators.GreaterEquals: operators.Less, operators.Greater: operators.LessEquals, operators.LessEquals: operators.Greater,
	}
	mirrored = map[string]string{
		operators.Less: operators.Greater, operators.Greater: operators.Less,
		operators.LessEquals: operators.GreaterEquals, operators.GreaterEquals: operators.LessEquals,
	}
)

// meetComparison changes one operand of a comparison, based on the value of the other. If neither has
// a value and they must be equal, it sets both.
func (s *search) meetComparison(w *world, op string, args []ast.Expr, want bool, sc *scope, next then) bool { //nolint:revive // the parameters go through the whole search
	if !want {
		op = negated[op]
	}
	if op == operators.Equals && s.evalExpr(w, args[0], sc) == nil && s.evalExpr(w, args[1], sc) == nil {
		return s.assignValue(w, args[0], types.String(some), sc, func(w *world) bool { return s.assignValue(w, args[1], types.String(some), sc, next) })
	}
	for i, side := range args {
		value := s.evalExpr(w, args[1-i], sc)
		if b, ok := value.(types.Bool); ok && s.expression.AST().GetType(side.ID()).Kind() == types.BoolKind {
			if s.meetCondition(w, side, bool(b) == (op == operators.Equals), sc, next) {
				return true
			}
			continue
		}
		if i == 1 && mirrored[op] != "" {
			op = mirrored[op]
		}
		for _, v := range valuesFor(op, value) {
			if s.assignValue(w, side, v, sc, next) {
				return true
			}
		}
	}
	return false
}

// valuesFor returns values to try. For most of them, the comparison with the given value is true.
func valuesFor(op string, value ref.Val) []ref.Val {
	up := map[string]int64{operators.Equals: 0, operators.NotEquals: 1, operators.Less: -1, operators.LessEquals: 0, operators.Greater: 1, operators.GreaterEquals: 0}[op]
	switch v := value.(type) {
	case nil:
		return nil
	case types.Int:
		return []ref.Val{v + types.Int(up), v - types.Int(up)}
	case types.Double:
		return []ref.Val{v + types.Double(up), v - types.Double(up)}
	case types.String:
		switch op {
		case operators.NotEquals:
			return otherStrings(string(v))
		case operators.Less:
			return []ref.Val{types.String("")}
		case operators.Greater:
			return []ref.Val{v + "a"}
		}
	case *types.Optional:
		if op == operators.NotEquals && v.HasValue() {
			return append(valuesFor(op, v.GetValue()), types.OptionalNone)
		} else if op == operators.NotEquals {
			return []ref.Val{types.String(some), types.Int(1), types.True}
		}
	}
	if op == operators.NotEquals {
		return nil
	}
	return []ref.Val{value}
}

// otherStrings returns strings that differ from a string.
func otherStrings(text string) []ref.Val {
	all := []ref.Val{types.String(some)}
	if text == some {
		all = nil
	}
	if text != "" {
		all = append(all, types.String(text+"-"+some), types.String(""))
	}
	return all
}

// meetIn makes a value an item of a list or a name in an object. If want is false, it makes sure that
// the value is not one.
func (s *search) meetIn(w *world, e, of ast.Expr, want bool, sc *scope, next then) bool { //nolint:revive // the parameters go through the whole search
	if !want {
		return s.meetNotIn(w, e, of, sc, next)
	}
	container := s.evalExpr(w, of, sc)
	for _, v := range keysOf(container) {
		if s.assignValue(w, e, v, sc, next) {
			return true
		}
	}
	value := s.evalExpr(w, e, sc)
	if value == nil {
		return false
	}
	if text, _, ok := s.findSplit(w, of, sc); ok {
		return s.assignValue(w, text, value, sc, next)
	}
	if key, ok := value.(types.String); ok && s.isMap(of) {
		p, ok := s.placeOf(w, of, sc)
		return ok && next(w.withValue(p.childPath(string(key)), anyOf(p.childPath(string(key)))))
	}
	l := loop{list: of}
	return s.forSomeItem(w, l, sc, func(w *world, item *scope) bool {
		if item.place != nil {
			v, ok := nativeValue(value)
			return ok && next(w.withValue(item.place, v))
		}
		return s.assignVariable(w, item, value, next)
	})
}

// meetNotIn changes the value, or removes it from the list or the object.
func (s *search) meetNotIn(w *world, e, of ast.Expr, sc *scope, next then) bool {
	value := s.evalExpr(w, e, sc)
	if text, ok := value.(types.String); ok || value == nil {
		for _, v := range otherStrings(string(text)) {
			if s.assignValue(w, e, v, sc, next) {
				return true
			}
		}
	}
	p, ok := s.placeOf(w, of, sc)
	if key, isText := value.(types.String); ok && isText && s.isMap(of) {
		return next(w.withValue(p.childPath(string(key)), nil))
	}
	list, isList := w.valueAt(p).([]any)
	if want, known := nativeValue(value); ok && isList && known {
		return next(w.withValue(p, slices.DeleteFunc(slices.Clone(list), func(item any) bool { return item == want })))
	}
	return false
}

// keysOf returns the values that are in a container: a list's items or an object's names.
func keysOf(container ref.Val) []ref.Val {
	m, ok := container.(traits.Mapper)
	if !ok {
		return listElements(container)
	}
	var all []ref.Val
	for it := m.Iterator(); it.HasNext() == types.True; {
		all = append(all, it.Next())
	}
	return all
}

// meetStringTest makes startsWith, endsWith, contains or matches true or false.
func (s *search) meetStringTest(w *world, e ast.Expr, want bool, sc *scope, next then) bool {
	call := e.AsCall()
	target, args := call.Target(), call.Args()
	if !call.IsMemberFunction() { // matches(text, pattern)
		target, args = args[0], args[1:]
	}
	part, ok := s.evalExpr(w, args[0], sc).(types.String)
	if !ok {
		return false
	}
	now, _ := s.evalExpr(w, target, sc).(types.String)
	all := []string{some, "", "other"}
	if want {
		all = stringsFor(call.FunctionName(), string(now), string(part))
	}
	for _, text := range all {
		if s.assignValue(w, target, types.String(text), sc, next) {
			return true
		}
	}
	return false
}

// stringsFor returns candidates for a string that starts with, ends with, contains or matches a
// part.
func stringsFor(name, now, part string) []string {
	edge := func(text string) bool { // no name, label or image may end with it
		return text == "" || !unicode.IsLetter(rune(text[len(text)-1])) && !unicode.IsDigit(rune(text[len(text)-1]))
	}
	all := []string{part}
	switch name {
	case "startsWith":
		if edge(part) {
			all = []string{part + some, part}
		}
		return append(all, part+now)
	case "endsWith":
		if part == "" || edge(part[:1]) {
			all = []string{some + part, part}
		}
		return append(all, now+part)
	case "contains":
		if edge(part) {
			all = []string{some + part + some, part}
		}
		return append(all, now+part, part+now)
	}
	return stringsMatching(part)
}
