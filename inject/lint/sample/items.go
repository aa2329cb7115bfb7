// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// forSomeItem continues with every item of a list, and with a new one.
func (s *search) forSomeItem(w *world, l loop, sc *scope, next func(*world, *scope) bool) bool {
	for _, item := range s.itemScopes(w, l, sc) {
		if next(w, item) {
			return true
		}
	}
	return s.growList(w, l.list, sc, func(w *world, item scope) bool { return next(w, item.withOuter(sc, l.name)) })
}

// itemScopes returns the items of a macro's list, as scopes of the macro's variable.
func (s *search) itemScopes(w *world, l loop, sc *scope) []*scope {
	var all []*scope
	for _, item := range s.itemsOf(w, l.list, sc) {
		all = append(all, item.withOuter(sc, l.name))
	}
	return all
}

// itemsOf returns the items of a list, or the names of an object's members.
func (s *search) itemsOf(w *world, list ast.Expr, sc *scope) []scope {
	var all []scope
	if inner, ok := loopOf(list); ok && inner.macro == "map" {
		for _, item := range s.itemScopes(w, inner, sc) {
			if inner.where == nil || s.evaluatesTo(w, inner.where, true, item) {
				all = append(all, scope{expr: inner.body, in: item})
			}
		}
		return all
	}
	if list.Kind() == ast.ListKind {
		for _, item := range list.AsList().Elements() {
			all = append(all, scope{expr: item, in: sc})
		}
		return all
	}
	p, ok := s.placeOf(w, list, sc)
	switch value := w.valueAt(p).(type) {
	case []any:
		for i := range value {
			all = append(all, scope{place: p.childPath(i)})
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			all = append(all, scope{place: p.childPath(key), key: true})
		}
	}
	if ok {
		return all
	}
	text, _, _ := s.findSplit(w, list, sc)
	for _, value := range listElements(s.evalExpr(w, list, sc)) {
		all = append(all, scope{value: value, text: text})
	}
	return all
}

func listElements(list ref.Val) []ref.Val {
	var all []ref.Val
	if l, ok := list.(traits.Lister); ok {
		for it := l.Iterator(); it.HasNext() == types.True; {
			all = append(all, it.Next())
		}
	}
	return all
}

// growList continues with a list that has one more item.
func (s *search) growList(w *world, list ast.Expr, sc *scope, next func(*world, scope) bool) bool {
	if s.steps--; s.steps < 0 {
		return false
	}
	if inner, ok := loopOf(list); ok && inner.macro == "map" {
		return s.growList(w, inner.list, sc, func(w *world, item scope) bool {
			in := item.withOuter(sc, inner.name)
			if inner.where == nil {
				return next(w, scope{expr: inner.body, in: in})
			}
			return s.meetCondition(w, inner.where, true, in, func(w *world) bool { return next(w, scope{expr: inner.body, in: in}) })
		})
	}
	if text, _, ok := s.findSplit(w, list, sc); ok {
		return next(w, scope{value: types.String(some), text: text})
	}
	p, ok := s.placeOf(w, list, sc)
	if !ok {
		return false
	}
	if s.isMap(list) {
		return next(w.withValue(p.childPath(some), anyOf(p.childPath(some))), scope{place: p.childPath(some), key: true})
	}
	if items, _ := w.valueAt(p).([]any); len(items) >= maxList {
		return false
	}
	w, at := w.withItem(p)
	return next(w, scope{place: at})
}
