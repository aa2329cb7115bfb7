// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// lifecycle is the field of a container that an API server drops if it contains only a gated field.
const lifecycle = "lifecycle"

// wholeWithGated reports whether an expression reads e whole, and e may contain gated fields.
func wholeWithGated(e ast.NavigableExpr) bool {
	if !containsGated(e.Type()) {
		return false
	}
	parent, ok := e.Parent()
	if !ok {
		return true // the value of the whole expression
	}
	switch parent.Kind() {
	case ast.SelectKind:
		return parent.AsSelect().FieldName() == lifecycle
	case ast.ComprehensionKind:
		if parent.AsComprehension().IterRange().ID() == e.ID() {
			return false
		}
	case ast.CallKind:
		switch call := parent.AsCall(); call.FunctionName() {
		case operators.OptSelect:
			field, _ := StringLiteral(call.Args()[1])
			return field == lifecycle
		case operators.Index, operators.OptIndex, overloads.Size, "hasValue":
			return false
		case operators.Add, operators.Conditional, "or", "orValue", "value", "first", "last", "slice", "reverse":
		default:
			return true
		}
	}
	return !containsGated(parent.Type()) // otherwise it is a part of the parent
}

// containsGated reports whether an object of a type, or one in it, may have a gated field.
func containsGated(t *types.Type) bool {
	return withGated()[t.TypeName()] || slices.ContainsFunc(t.Parameters(), containsGated)
}

// withGated has the names of the structs in a pod that have a gated field or contain such a struct.
var withGated = sync.OnceValue(func() map[string]bool {
	found := map[string]bool{}
	var visit func(t reflect.Type) bool
	visit = func(t reflect.Type) bool {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if !values.IsStruct(t.Name()) {
			return false // a quantity or a time, for example
		}
		if known, ok := found[t.Name()]; ok {
			return known
		}
		found[t.Name()] = false
		for _, f := range jsontree.StructFields(t) {
			if values.Gated(f.Parent.Name(), f.JSON) || visit(f.Type) {
				found[t.Name()] = true
			}
		}
		return found[t.Name()]
	}
	visit(reflect.TypeFor[corev1.Pod]())
	return found
})
