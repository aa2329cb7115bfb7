// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"slices"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel"
)

// origin is what a value can be made of, as far as an expression shows. The type of the expression is
// not enough: CEL accepts a value of unknown type in place of any other, for example in
// pod.spec.containers[0].env + params.json, and the type of a map does not contain its keys.
type origin struct {
	kind   originKind
	typ    *types.Type // of the expression
	of     *origin     // the items of a list, the values of a map, or the value of an optional one
	keys   []originKey // of a literal
	either []*origin
}

type originKind int

const (
	fromEither   originKind = iota // one of several origins. If there are none, there is no value.
	fromAnything                   // for example, the JSON of an annotation
	fromType                       // a scalar, or an object of the API: the type says everything
	fromList
	fromMap // keys are known only at run time
	fromLiteral
	fromOptional
)

// originKey is a constant key of a map literal.
type originKey struct {
	name  string
	value *origin
}

func anyOrigin(typ *types.Type) *origin { return &origin{kind: fromAnything, typ: typ} }

// ofType returns the origin of a value that a type describes completely.
func ofType(t *types.Type) *origin {
	if of, optional := cel.ValueType(t); optional {
		return &origin{kind: fromOptional, typ: t, of: ofType(of)}
	}
	switch t.Kind() {
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.ErrorKind:
		return anyOrigin(t)
	case types.ListKind:
		return &origin{kind: fromList, typ: t, of: ofType(t.Parameters()[0])}
	case types.MapKind:
		return &origin{kind: fromMap, typ: t, of: ofType(t.Parameters()[1])}
	}
	return &origin{kind: fromType, typ: t}
}

// mergeOrigins returns the origin of a value that has one of several.
func mergeOrigins(typ *types.Type, all ...*origin) *origin {
	var one []*origin
	for _, o := range all {
		for _, o := range o.possibleOrigins() {
			if o.kind == fromAnything {
				return o
			}
			if !slices.Contains(one, o) {
				one = append(one, o)
			}
		}
	}
	if len(one) == 1 {
		return one[0]
	}
	return &origin{kind: fromEither, typ: typ, either: one}
}

func (o *origin) possibleOrigins() []*origin {
	if o.kind == fromEither {
		return o.either
	}
	return []*origin{o}
}

// elementOrigin returns the origin of the items of a list, the values of a map or the value of an optional
// one.
func (o *origin) elementOrigin(typ *types.Type) *origin {
	var values []*origin
	for _, o := range o.possibleOrigins() {
		switch o.kind {
		case fromList, fromMap, fromOptional:
			values = append(values, o.of)
		case fromLiteral:
			for _, key := range o.keys {
				values = append(values, key.value)
			}
		default:
			return anyOrigin(typ)
		}
	}
	return mergeOrigins(typ, values...)
}

// memberOrigin returns the origin of a field, of the value of a key or of an item. The name is "" if it is
// known only at run time. An object of the API has a field of type typ.
func (o *origin) memberOrigin(name string, typ *types.Type) *origin {
	var values []*origin
	for _, o := range o.possibleOrigins() {
		switch {
		case o.kind == fromOptional:
			values = append(values, o.of.memberOrigin(name, typ))
		case o.kind == fromType && o.typ.Kind() == types.StructKind:
			values = append(values, ofType(typ))
		case o.kind == fromLiteral && name != "":
			for _, key := range o.keys {
				if key.name == name {
					values = append(values, key.value)
				}
			}
		default:
			values = append(values, o.elementOrigin(typ))
		}
	}
	return mergeOrigins(typ, values...)
}

// flattenedOrigin returns the origin of the items of list.flatten().
func (o *origin) flattenedOrigin(typ *types.Type) *origin {
	var items []*origin
	for _, item := range o.elementOrigin(typ).possibleOrigins() {
		if item.kind == fromList {
			item = item.of
		}
		items = append(items, item)
	}
	return mergeOrigins(typ, items...)
}

// loopVariableOrigin returns the origin of the variable of a loop over the value: a key of a map, or an item of a
// list.
func (o *origin) loopVariableOrigin() *origin {
	var values []*origin
	for _, o := range o.possibleOrigins() {
		switch {
		case o.kind == fromList:
			values = append(values, o.of)
		case (o.kind == fromMap || o.kind == fromLiteral) && o.typ.Kind() == types.MapKind:
			values = append(values, ofType(o.typ.Parameters()[0]))
		default:
			return anyOrigin(types.DynType)
		}
	}
	return mergeOrigins(types.DynType, values...)
}

// isCertain reports whether no part of the value can be anything.
func (o *origin) isCertain() bool {
	seen := map[*origin]bool{}
	var certain func(o *origin) bool
	certain = func(o *origin) bool {
		if o == nil || seen[o] {
			return true
		}
		seen[o] = true
		return o.kind != fromAnything && certain(o.of) && !slices.ContainsFunc(o.either, func(o *origin) bool { return !certain(o) }) &&
			!slices.ContainsFunc(o.keys, func(key originKey) bool { return !certain(key.value) })
	}
	return certain(o)
}

// indexOrigin returns the origin of the first of two variables of a loop over the value: a key of a map, or an index of a list.
func (o *origin) indexOrigin() *origin {
	var values []*origin
	for _, o := range o.possibleOrigins() {
		switch {
		case o.kind == fromList:
			values = append(values, ofType(types.IntType))
		case (o.kind == fromMap || o.kind == fromLiteral) && o.typ.Kind() == types.MapKind:
			values = append(values, ofType(o.typ.Parameters()[0]))
		default:
			return anyOrigin(types.DynType)
		}
	}
	return mergeOrigins(types.DynType, values...)
}

// mergedOrigin returns the origin of first.merge(second). Its keys are known if those of both are.
func mergedOrigin(typ *types.Type, first, second *origin) *origin {
	merged := &origin{kind: fromLiteral, typ: typ}
	for _, o := range append(slices.Clone(first.possibleOrigins()), second.possibleOrigins()...) {
		if o.kind != fromLiteral {
			return &origin{kind: fromMap, typ: typ, of: mergeOrigins(types.DynType, first.elementOrigin(types.DynType), second.elementOrigin(types.DynType))}
		}
		for _, key := range o.keys {
			i := slices.IndexFunc(merged.keys, func(k originKey) bool { return k.name == key.name })
			if i < 0 {
				merged.keys = append(merged.keys, key)
				continue
			}
			merged.keys[i].value = mergeOrigins(types.DynType, merged.keys[i].value, key.value)
		}
	}
	return merged
}
