// SPDX-License-Identifier: Apache-2.0

package values

import (
	"cmp"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// keyed is one of CEL's maps with an order. CEL iterates its own maps in any order. In Pillion's expressions, all maps are
// iterated in the order of their keys, so that the same input gives the same bytes.
type keyed struct {
	traits.Mapper

	keys []ref.Val
}

// OfMap returns a CEL map with string keys, which is iterated in their order.
func OfMap(values map[string]ref.Val) ref.Val {
	m, keys := make(map[ref.Val]ref.Val, len(values)), make([]ref.Val, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		keys = append(keys, types.String(key))
		m[types.String(key)] = values[key]
	}
	return keyed{types.NewRefValMap(types.DefaultTypeAdapter, m), keys}
}

// WithOrder returns a map that is iterated in the order of its keys. It returns other values unchanged.
func WithOrder(v ref.Val) ref.Val {
	m, ok := v.(traits.Mapper)
	if !ok || isOrdered(v) {
		return v
	}
	var keys []ref.Val
	for it := m.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(a, b ref.Val) int {
		if comparer, ok := a.(traits.Comparer); ok {
			if order, ok := comparer.Compare(b).(types.Int); ok && order != 0 {
				return int(order)
			}
		}
		return cmp.Compare(a.Type().TypeName(), b.Type().TypeName())
	})
	return keyed{m, keys}
}

func isOrdered(v ref.Val) bool {
	switch v.(type) {
	case keyed, object:
		return true
	}
	return false
}

// Iterator implements traits.Iterable.
func (k keyed) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, k.keys).Iterator()
}

// IsZeroValue implements traits.Zeroer.
func (k keyed) IsZeroValue() bool { return len(k.keys) == 0 }

// String returns the map as CEL's functions print it in errors.
func (k keyed) String() string {
	text, err := AppendJSON(nil, k)
	if err != nil {
		return "a map"
	}
	return string(text)
}
