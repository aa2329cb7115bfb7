// SPDX-License-Identifier: Apache-2.0

package values

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// iterator makes each value of a list or a map when an expression asks for it. CEL charges nothing
// for a loop that ends at its first value, so starting one must take little time.
type iterator struct {
	ref.Val // nil: no expression sees an iterator

	next, size int
	value      func(i int) ref.Val
}

var _ traits.Iterator = (*iterator)(nil)

// HasNext implements traits.Iterator.
func (it *iterator) HasNext() ref.Val { return types.Bool(it.next < it.size) }

// Next implements traits.Iterator.
func (it *iterator) Next() ref.Val {
	it.next++
	return it.value(it.next - 1)
}

// SortedMembers returns the members of an object that have a value, each name once, in the order of their names. The
// API server sends them in this order.
func SortedMembers(object *jsontree.Node) []*jsontree.Node {
	members := object.Members()
	all, inOrder := make([]*jsontree.Node, len(members)), true
	for i := range members {
		all[i] = &members[i]
		inOrder = inOrder && (i == 0 || all[i-1].Name() < all[i].Name())
	}
	if !inOrder {
		slices.SortStableFunc(all, func(a, b *jsontree.Node) int { return strings.Compare(a.Name(), b.Name()) })
	}
	kept := all[:0]
	for i, n := range all {
		isLast := i == len(all)-1 || all[i+1].Name() != n.Name()
		if isLast && n.Kind() != jsontree.Null {
			kept = append(kept, n)
		}
	}
	return kept
}
