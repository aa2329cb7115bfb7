// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
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
