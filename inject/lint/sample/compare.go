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

// compare changes one operand of a comparison, based on the value of the other. If neither has
// a value and they must be equal, it sets both.
func (s *search) compare(w *world, op string, args []ast.Expr, want bool, sc *scope, next then) bool { //nolint:revive // the parameters go through the whole search
	if !want {
		op = negated[op]
	}
	if op == operators.Equals && s.eval(w, args[0], sc) == nil && s.eval(w, args[1], sc) == nil {
		return s.assign(w, args[0], types.String(some), sc, func(w *world) bool { return s.assign(w, args[1], types.String(some), sc, next) })
	}
	for i, side := range args {
		value := s.eval(w, args[1-i], sc)
		if b, ok := value.(types.Bool); ok && s.expression.AST().GetType(side.ID()).Kind() == types.BoolKind {
			if s.meet(w, side, bool(b) == (op == operators.Equals), sc, next) {
				return true
			}
			continue
		}
		if i == 1 && mirrored[op] != "" {
			op = mirrored[op]
		}
		for _, v := range candidates(op, value) {
			if s.assign(w, side, v, sc, next) {
				return true
			}
		}
	}
	return false
}

// candidates returns values to try. For most of them, the comparison with the given value is true.
func candidates(op string, value ref.Val) []ref.Val {
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
			return others(string(v))
		case operators.Less:
			return []ref.Val{types.String("")}
		case operators.Greater:
			return []ref.Val{v + "a"}
		}
	case *types.Optional:
		if op == operators.NotEquals && v.HasValue() {
			return append(candidates(op, v.GetValue()), types.OptionalNone)
		} else if op == operators.NotEquals {
			return []ref.Val{types.String(some), types.Int(1), types.True}
		}
	}
	if op == operators.NotEquals {
		return nil
	}
	return []ref.Val{value}
}

// others returns strings that differ from a string.
func others(text string) []ref.Val {
	all := []ref.Val{types.String(some)}
	if text == some {
		all = nil
	}
	if text != "" {
		all = append(all, types.String(text+"-"+some), types.String(""))
	}
	return all
}

// in makes a value an item of a list or a name in an object. If want is false, it makes sure that
// the value is not one.
func (s *search) in(w *world, e, of ast.Expr, want bool, sc *scope, next then) bool { //nolint:revive // the parameters go through the whole search
	if !want {
		return s.notIn(w, e, of, sc, next)
	}
	container := s.eval(w, of, sc)
	for _, v := range keys(container) {
		if s.assign(w, e, v, sc, next) {
			return true
		}
	}
	value := s.eval(w, e, sc)
	if value == nil {
		return false
	}
	if text, _, ok := s.split(w, of, sc); ok {
		return s.assign(w, text, value, sc, next)
	}
	if key, ok := value.(types.String); ok && s.isMap(of) {
		p, ok := s.placeOf(w, of, sc)
		return ok && next(w.set(p.to(string(key)), anyOf(p.to(string(key)))))
	}
	l := loop{list: of}
	return s.some(w, l, sc, func(w *world, item *scope) bool {
		if item.place != nil {
			v, ok := native(value)
			return ok && next(w.set(item.place, v))
		}
		return s.assignVariable(w, item, value, next)
	})
}

// notIn changes the value, or removes it from the list or the object.
func (s *search) notIn(w *world, e, of ast.Expr, sc *scope, next then) bool {
	value := s.eval(w, e, sc)
	if text, ok := value.(types.String); ok || value == nil {
		for _, v := range others(string(text)) {
			if s.assign(w, e, v, sc, next) {
				return true
			}
		}
	}
	p, ok := s.placeOf(w, of, sc)
	if key, isText := value.(types.String); ok && isText && s.isMap(of) {
		return next(w.set(p.to(string(key)), nil))
	}
	list, isList := w.get(p).([]any)
	if want, known := native(value); ok && isList && known {
		return next(w.set(p, slices.DeleteFunc(slices.Clone(list), func(item any) bool { return item == want })))
	}
	return false
}

// keys returns the values that are in a container: a list's items or an object's names.
func keys(container ref.Val) []ref.Val {
	m, ok := container.(traits.Mapper)
	if !ok {
		return elements(container)
	}
	var all []ref.Val
	for it := m.Iterator(); it.HasNext() == types.True; {
		all = append(all, it.Next())
	}
	return all
}

// text makes startsWith, endsWith, contains or matches true or false.
func (s *search) text(w *world, e ast.Expr, want bool, sc *scope, next then) bool {
	call := e.AsCall()
	target, args := call.Target(), call.Args()
	if !call.IsMemberFunction() { // matches(text, pattern)
		target, args = args[0], args[1:]
	}
	part, ok := s.eval(w, args[0], sc).(types.String)
	if !ok {
		return false
	}
	now, _ := s.eval(w, target, sc).(types.String)
	all := []string{some, "", "other"}
	if want {
		all = stringsFor(call.FunctionName(), string(now), string(part))
	}
	for _, text := range all {
		if s.assign(w, target, types.String(text), sc, next) {
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
