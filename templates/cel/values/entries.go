// SPDX-License-Identifier: Apache-2.0

package values

import (
	"iter"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Entries yields the keys of a map, in order, and their values. It does not look up the keys of a JSON object, because each look-up
// reads the members again.
func Entries(m traits.Mapper) iter.Seq2[ref.Val, ref.Val] {
	return func(yield func(key, value ref.Val) bool) {
		if n, ok := ObjectNode(m); ok {
			for _, e := range SortedMembers(n) {
				if !yield(types.String(e.Name()), Of(e)) {
					return
				}
			}
			return
		}
		m = WithOrder(m).(traits.Mapper)
		for it := m.Iterator(); it.HasNext() == types.True; {
			if key := it.Next(); !yield(key, m.Get(key)) {
				return
			}
		}
	}
}

// Indexed yields the indexes of a list, and its items.
func Indexed(l traits.Lister) iter.Seq2[ref.Val, ref.Val] {
	return func(yield func(index, item ref.Val) bool) {
		n, _ := l.Size().(types.Int)
		for i := range n {
			if !yield(i, l.Get(i)) {
				return
			}
		}
	}
}
