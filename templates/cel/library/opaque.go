// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// opaqueType is the type of values of expressions that are a T in Go and have only functions.
type opaqueType[T any] struct {
	*types.Type

	equal func(a, b T) bool
}

// opaque is a value of an opaqueType. It keeps the string that it was made from.
type opaque[T any] struct {
	typ   *opaqueType[T]
	value T
	text  string
}

// Weight returns the length of the string that the value was made from. Reading the value costs as much as reading it.
func (o opaque[T]) Weight() int { return len(o.text) }

// ConvertToNative implements ref.Val.
func (o opaque[T]) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a %s cannot become a %v", o.typ, t)
}

// ConvertToType implements ref.Val.
func (o opaque[T]) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case ref.Type(o.typ.Type):
		return o
	case types.TypeType:
		return o.typ.Type
	}
	return types.NewErr("a %s cannot become a %s", o.typ, t.TypeName())
}

// Equal implements ref.Val.
func (o opaque[T]) Equal(other ref.Val) ref.Val {
	same, ok := other.(opaque[T])
	return types.Bool(ok && o.typ.equal(o.value, same.value))
}

// Type implements ref.Val.
func (o opaque[T]) Type() ref.Type { return o.typ.Type }

// Value implements ref.Val.
func (o opaque[T]) Value() any { return o.value }
