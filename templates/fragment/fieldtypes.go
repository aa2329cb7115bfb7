// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"reflect"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// isScalars reports whether the type is one of scalars, or of lists of them.
func isScalars(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if values.IsScalar(t) {
		return true
	}
	return t.Kind() == reflect.Slice && isScalars(t.Elem())
}

func describeWhole(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice:
		return "a list of objects of type " + t.Elem().Name()
	case reflect.Map:
		return "a map of strings"
	}
	return "an object of type " + t.Name()
}

func describeType(t reflect.Type) string {
	if isScalars(t) {
		return values.DescribeType(t)
	}
	return describeWhole(t)
}

// mayBecome reports whether a value of a CEL type may be an object, a list or a map of a Go type. A map may have any keys and values,
// and a value of unknown type may be anything, for example JSON of an annotation.
func mayBecome(t reflect.Type, out *types.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case out.Kind() == types.DynKind:
		return true
	case isScalars(t):
		return values.AcceptsType(t, out)
	case t.Kind() == reflect.Slice:
		return out.Kind() == types.ListKind && mayBecome(t.Elem(), out.Parameters()[0])
	case out.Kind() == types.MapKind && t.Kind() == reflect.Map:
		return mayBecome(t.Elem(), out.Parameters()[1])
	case out.Kind() == types.MapKind:
		key := out.Parameters()[0].Kind()
		return key == types.StringKind || key == types.DynKind
	}
	return out.Kind() == types.StructKind && out.TypeName() == t.Name()
}
