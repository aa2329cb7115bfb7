// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// This file has the ends of messages about values of the wrong type: how to convert them.

// toBool returns how to make a condition from a value.
func toBool(out *cel.Type, source string) string {
	switch out.Kind() {
	case types.StringKind:
		return "; write " + source + " == 'true', or give a parameter the type boolean"
	case types.DynKind:
		return "; write bool(" + source + ")"
	}
	return ""
}

// toText returns how to make a part of a string from a value.
func toText(out *cel.Type, source string) string {
	switch {
	case out.Kind() == types.ListKind && out.Parameters()[0].Kind() == types.StringKind:
		return "; write ${" + source + ".join(',')}"
	case out.Kind() == types.DynKind:
		return "; write string(" + source + ") for a single value, or json.marshal(" + source + ") for an object or a list"
	case out.Kind() == types.ListKind || out.Kind() == types.MapKind:
		return "; for JSON, write ${json.marshal(" + source + ")}"
	}
	return ""
}

// toType returns how to make a value of type t.
func toType(t reflect.Type, out *cel.Type, source string) string {
	switch {
	case values.AcceptsType(t, cel.StringType):
		return toText(out, source)
	case out.Kind() != types.StringKind && out.Kind() != types.DynKind:
		return ""
	case values.AcceptsType(t, cel.IntType) && out.Kind() == types.DynKind:
		return "; write int(" + source + ")"
	case values.AcceptsType(t, cel.IntType):
		return "; write int(" + source + "), or give a parameter, or its items, the type integer"
	case values.AcceptsType(t, cel.BoolType):
		return toBool(out, source)
	}
	return ""
}

// ofNames returns the form of a list if an object is written instead.
func ofNames(t reflect.Type, y *yaml.Node) string {
	more := ", ..."
	switch t.Elem() {
	case reflect.TypeFor[corev1.EnvVar]():
		more = ", value: ..."
	case reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.Volume](), reflect.TypeFor[v1alpha1.Param](), reflect.TypeFor[v1alpha1.Variable]():
	default:
		return ""
	}
	for i, key := range y.Content {
		switch {
		case y.Kind != yaml.MappingNode || i%2 == 1 || strings.HasPrefix(key.Value, "${"):
		case key.Value == "name":
			return "; begin the item with -"
		default:
			return "; write {name: " + key.Value + more + "} for each item"
		}
	}
	return ""
}
