// SPDX-License-Identifier: Apache-2.0

// Package values has the values and the types that CEL's expressions see: JSON as it was received, the fields of the Kubernetes
// API, and the namespace, the ServiceAccount and the request beside the pod. It limits how large a value may be.
//
// CEL's own values for JSON copy a whole document first, and iterate maps in any order. These decode what an expression reads,
// and iterate maps in the order of their keys.
package values

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Of converts JSON to a CEL value. Objects and lists are decoded only as far as expressions read them. What is longer than
// [MaxItems] or [MaxText], or a number that is too large, becomes an error value.
func Of(n *jsontree.Node) ref.Val {
	switch n.Kind() {
	case jsontree.String:
		return ofText(n.Text())
	case jsontree.True, jsontree.False:
		return types.Bool(n.Kind() == jsontree.True)
	case jsontree.Number:
		if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			return types.Int(i)
		}
		f, err := strconv.ParseFloat(n.String(), 64)
		if err != nil {
			return types.NewErr("%s is too large a number", n)
		}
		return types.Double(f)
	case jsontree.Array:
		items := n.Items()
		if len(items) > MaxItems {
			return types.NewErr("a list of %d items is too long to be read; at most %d", len(items), MaxItems)
		}
		return list{items}
	case jsontree.Object:
		if size := len(n.Members()); size > MaxItems {
			return types.NewErr("an object with %d members is too large to be read; at most %d", size, MaxItems)
		}
		return object{n}
	}
	return types.NullValue
}

// ofText converts a string to a CEL value. A string that is longer than [MaxText] becomes an error value.
func ofText(text string) ref.Val {
	if len(text) > MaxText {
		return types.NewErr("a string of %d bytes is too long to be read; at most %d", len(text), MaxText)
	}
	return types.String(text)
}

// ofStrings converts labels or annotations to a CEL map, which is in the order of its keys. A map with more than [MaxItems]
// members becomes an error value.
func ofStrings(m map[string]string) ref.Val {
	if len(m) > MaxItems {
		return types.NewErr("an object with %d members is too large to be read; at most %d", len(m), MaxItems)
	}
	n := jsontree.Members()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n.Set(k, jsontree.Text(m[k]))
	}
	return object{&n}
}

// object is a JSON object as a CEL map. Unlike CEL's own maps, it is ordered by its keys. The API
// server sends keys sorted and a file may not, so the same pod renders to the same bytes from both.
type object struct{ node *jsontree.Node }

var (
	_ traits.Mapper   = object{}
	_ traits.Foldable = object{}
)

// Find implements traits.Mapper.
func (o object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	if n := o.node.Get(string(name)); n != nil {
		return Of(n), true
	}
	return nil, false
}

// Get implements traits.Indexer.
func (o object) Get(key ref.Val) ref.Val {
	if v, ok := o.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key.Value())
}

// Contains implements traits.Container.
func (o object) Contains(key ref.Val) ref.Val {
	_, ok := o.Find(key)
	return types.Bool(ok)
}

// Size implements traits.Sizer.
func (o object) Size() ref.Val { return types.Int(len(SortedMembers(o.node))) }

// IsZeroValue implements traits.Zeroer. CEL charges nothing for its time, so it reads only the first
// member that has a value.
func (o object) IsZeroValue() bool {
	return !slices.ContainsFunc(o.node.Members(), func(m jsontree.Node) bool { return m.Kind() != jsontree.Null })
}

// Iterator implements traits.Iterable.
func (o object) Iterator() traits.Iterator {
	entries := SortedMembers(o.node)
	return &iterator{size: len(entries), value: func(i int) ref.Val { return types.String(entries[i].Name()) }}
}

// Fold implements traits.Foldable, for loops over keys and values. Without it, CEL would look up each key, and each look-up reads
// the members again.
func (o object) Fold(f traits.Folder) {
	for _, e := range SortedMembers(o.node) {
		if !f.FoldEntry(types.String(e.Name()), Of(e)) {
			return
		}
	}
}

// Equal implements ref.Val.
func (o object) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok {
		return types.False
	}
	entries := SortedMembers(o.node)
	if m.Size() != types.Int(len(entries)) {
		return types.False
	}
	theirs, isObject := other.(object)
	var others []*jsontree.Node
	if isObject {
		others = SortedMembers(theirs.node)
	}
	for i, e := range entries {
		var v ref.Val
		switch {
		case !isObject:
			if v, ok = m.Find(types.String(e.Name())); !ok {
				return types.False
			}
		case others[i].Name() != e.Name():
			return types.False
		default:
			v = Of(others[i])
		}
		if types.Equal(Of(e), v) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (o object) ConvertToNative(t reflect.Type) (any, error) {
	if t == reflect.TypeFor[*jsontree.Node]() {
		return o.node, nil
	}
	return nil, fmt.Errorf("an object cannot become a %v", t)
}

// ConvertToType implements ref.Val.
func (o object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from map to %q", t.TypeName())
}

// String returns the object as CEL's functions print it in errors. Without it, they print its address.
func (o object) String() string { return o.node.String() }

// Type implements ref.Val.
func (o object) Type() ref.Type { return types.MapType }

// Value implements ref.Val. The fields of a typed object are read from its result.
func (o object) Value() any { return o.node }

// ObjectNode returns the JSON object that [Of] made a value from. It returns false for other values.
func ObjectNode(v ref.Val) (*jsontree.Node, bool) {
	o, ok := v.(object)
	return o.node, ok
}

// TextOf returns the string that a value is, or "" for a value of another type.
func TextOf(v ref.Val) string {
	text, _ := v.(types.String)
	return string(text)
}

// ToJSON returns the JSON of an expression's value. It writes CEL's own maps in the order of their keys. It returns an error
// if the JSON is longer than [MaxOutput], or if the value has no form in JSON.
func ToJSON(v ref.Val) (jsontree.Node, error) {
	room := MaxOutput
	return jsonWithin(v, &room)
}

// jsonWithin returns an error instead of JSON that is larger than room, in bytes. A small value may
// contain another one very many times.
func jsonWithin(v ref.Val, room *int) (jsontree.Node, error) {
	*room -= len(TextOf(v)) + 1
	if o, ok := v.(object); ok {
		*room -= o.node.Size() - 1
	}
	if *room < 0 {
		return jsontree.Node{}, ErrTooLong
	}
	switch v := v.(type) {
	case types.String:
		return jsontree.Text(string(v)), nil
	case types.Bool:
		return jsontree.Bool(bool(v)), nil
	case types.Int:
		return jsontree.Int(int64(v)), nil
	case types.Uint:
		return jsontree.Uint(uint64(v)), nil
	case types.Double:
		if math.IsInf(float64(v), 0) || math.IsNaN(float64(v)) {
			return jsontree.Node{}, fmt.Errorf("the expression gives %v, which is no number in JSON", float64(v))
		}
		return jsontree.Float(float64(v)), nil
	case object:
		return *v.node, nil
	case traits.Lister:
		list := jsontree.Items()
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := jsonWithin(it.Next(), room)
			if err != nil {
				return jsontree.Node{}, err
			}
			list.Append(item)
		}
		return list, nil
	case traits.Mapper:
		return jsonMap(v, room)
	}
	return jsontree.Node{}, fmt.Errorf("the expression gives a %s, which has no place here", v.Type().TypeName())
}

func jsonMap(m traits.Mapper, room *int) (jsontree.Node, error) {
	values := map[string]jsontree.Node{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		value, err := jsonWithin(m.Get(key), room)
		if err != nil {
			return jsontree.Node{}, err
		}
		values[fmt.Sprint(key.Value())] = value
	}
	n := jsontree.Members()
	for _, k := range slices.Sorted(maps.Keys(values)) {
		n.Set(k, values[k])
	}
	return n, nil
}

// list is a JSON list as a CEL list. Its items are converted when they are read, because an
// expression that is evaluated for each container may read only their number.
type list struct{ items []jsontree.Node }

var _ traits.Lister = list{}

// convertAll converts all items, for operations that read all of them.
func (l list) convertAll() traits.Lister {
	values := make([]ref.Val, len(l.items))
	for i := range l.items {
		values[i] = Of(&l.items[i])
	}
	return types.NewRefValList(types.DefaultTypeAdapter, values)
}

// Get implements traits.Indexer.
func (l list) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil || i < 0 || i >= len(l.items) {
		return l.convertAll().Get(index) // which returns the error
	}
	return Of(&l.items[i])
}

// Size implements traits.Sizer.
func (l list) Size() ref.Val { return types.Int(len(l.items)) }

// IsZeroValue implements traits.Zeroer.
func (l list) IsZeroValue() bool { return len(l.items) == 0 }

// Iterator implements traits.Iterable.
func (l list) Iterator() traits.Iterator {
	return &iterator{size: len(l.items), value: func(i int) ref.Val { return Of(&l.items[i]) }}
}

// Add implements traits.Adder.
func (l list) Add(other ref.Val) ref.Val { return l.convertAll().Add(other) }

// Contains implements traits.Container.
func (l list) Contains(value ref.Val) ref.Val { return l.convertAll().Contains(value) }

// Equal implements ref.Val.
func (l list) Equal(other ref.Val) ref.Val { return l.convertAll().Equal(other) }

// ConvertToNative implements ref.Val.
func (l list) ConvertToNative(t reflect.Type) (any, error) { return l.convertAll().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (l list) ConvertToType(t ref.Type) ref.Val { return l.convertAll().ConvertToType(t) }

// String returns the list as CEL's functions print it in errors.
func (l list) String() string { n := jsontree.Items(l.items...); return n.String() }

// Type implements ref.Val.
func (l list) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l list) Value() any { return l.convertAll().Value() }
