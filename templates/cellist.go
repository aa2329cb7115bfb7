// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/tree"
)

// list is a JSON list as a CEL list. Its items are made when they are read: an
// expression that is evaluated for each container may want only their number.
type list struct{ items []tree.Node }

var _ traits.Lister = list{}

// whole has all items, for what goes through all of them anyway.
func (l list) whole() traits.Lister {
	values := make([]ref.Val, len(l.items))
	for i := range l.items {
		values[i] = celValue(&l.items[i])
	}
	return types.NewRefValList(types.DefaultTypeAdapter, values)
}

// Get implements traits.Indexer.
func (l list) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil || i < 0 || i >= len(l.items) {
		return l.whole().Get(index) // which says what is wrong
	}
	return celValue(&l.items[i])
}

// Size implements traits.Sizer.
func (l list) Size() ref.Val { return types.Int(len(l.items)) }

// IsZeroValue implements traits.Zeroer.
func (l list) IsZeroValue() bool { return len(l.items) == 0 }

// Iterator implements traits.Iterable.
func (l list) Iterator() traits.Iterator { return l.whole().Iterator() }

// Add implements traits.Adder.
func (l list) Add(other ref.Val) ref.Val { return l.whole().Add(other) }

// Contains implements traits.Container.
func (l list) Contains(value ref.Val) ref.Val { return l.whole().Contains(value) }

// Equal implements ref.Val.
func (l list) Equal(other ref.Val) ref.Val { return l.whole().Equal(other) }

// ConvertToNative implements ref.Val.
func (l list) ConvertToNative(t reflect.Type) (any, error) { return l.whole().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (l list) ConvertToType(t ref.Type) ref.Val { return l.whole().ConvertToType(t) }

// Type implements ref.Val.
func (l list) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l list) Value() any { return l.whole().Value() }
