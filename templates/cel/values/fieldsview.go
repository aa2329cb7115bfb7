// SPDX-License-Identifier: Apache-2.0

package values

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/request"
)

// fieldsView is a variable that is not JSON as a CEL value: params, ns or request. CEL reads x.f
// through the provider, and x.?f through this type.
type fieldsView struct {
	typ   string
	value any // what the provider reads
	find  func(name string) (any, bool)
}

var (
	_ traits.Indexer     = &fieldsView{}
	_ traits.FieldTester = &fieldsView{}
)

// OfFields returns the value of a variable that is not JSON. Typ is its type's name, value is the Go value that the provider's
// fields read, and find returns the field x.?name, or false if there is none.
func OfFields(typ string, value any, find func(name string) (any, bool)) ref.Val {
	return &fieldsView{typ, value, find}
}

// OfNamespace returns the value of the variable ns.
func OfNamespace(ns *request.Namespace) ref.Val {
	return sharedFields(NamespaceType, &metaView{name: ns.Name, labels: onceMap{of: ns.Labels}, annotations: onceMap{of: ns.Annotations}})
}

// OfServiceAccount returns the value of the variable serviceAccount.
func OfServiceAccount(a *request.ServiceAccount) ref.Val {
	return sharedFields(ServiceAccountType, &metaView{name: a.Name, labels: onceMap{of: a.Labels}, annotations: onceMap{of: a.Annotations}})
}

// OfRequest returns the value of the variable request.
func OfRequest(r *request.Info) ref.Val { return sharedFields(RequestType, r) }

// sharedFields returns the view of a value whose fields are the same for every template.
func sharedFields(typ string, value any) ref.Val {
	return OfFields(typ, value, func(name string) (any, bool) {
		f := sharedStructs()[typ][name]
		if f == nil {
			return nil, false
		}
		v, err := f.GetFrom(value)
		return v, err == nil
	})
}

// Get implements traits.Indexer.
func (f *fieldsView) Get(name ref.Val) ref.Val {
	v, _ := f.find(TextOf(name))
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// IsSet implements traits.FieldTester.
func (f *fieldsView) IsSet(name ref.Val) ref.Val {
	_, ok := f.find(TextOf(name))
	return types.Bool(ok)
}

// ConvertToNative implements ref.Val.
func (f *fieldsView) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a %s cannot become a %v", f.typ, t)
}

// ConvertToType implements ref.Val.
func (f *fieldsView) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return f.Type().(ref.Val)
	}
	return types.NewErr("a %s cannot become a %s", f.typ, t.TypeName())
}

// Equal implements ref.Val.
func (f *fieldsView) Equal(other ref.Val) ref.Val {
	v, ok := other.(*fieldsView)
	return types.Bool(ok && v.typ == f.typ) // there is one of each type
}

// Type implements ref.Val.
func (f *fieldsView) Type() ref.Type { return types.NewObjectType(f.typ) }

// Value implements ref.Val.
func (f *fieldsView) Value() any { return f.value }
