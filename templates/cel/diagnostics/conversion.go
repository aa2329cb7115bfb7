// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// BoolHint returns the end of a message about a value that is no condition: how to make one from it, or "". Out is the type of the
// expression source.
func BoolHint(out *cel.Type, source string) string {
	switch out.Kind() {
	case types.StringKind:
		return "; write " + Operand(source) + " == 'true', or give a parameter the type boolean"
	case types.DynKind:
		return "; write bool(" + source + ")"
	}
	return ""
}

// StringHint returns the end of a message about a value that cannot be part of a string: how to convert it, or "".
func StringHint(out *cel.Type, source string) string {
	switch {
	case out.Kind() == types.ListKind && out.Parameters()[0].Kind() == types.StringKind:
		return "; write ${" + Operand(source) + ".join(',')}"
	case out.Kind() == types.DynKind:
		return "; write string(" + source + ") for a single value, or json.marshal(" + source + ") for an object or a list"
	case isScalar(out):
		return "; write ${string(" + source + ")}"
	case out.Kind() == types.ListKind || out.Kind() == types.MapKind:
		return "; for JSON, write ${json.marshal(" + source + ")}"
	}
	return ""
}

// isScalar reports whether values of the type are scalars that string() converts.
func isScalar(out *cel.Type) bool {
	return slices.Contains([]types.Kind{types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind}, out.Kind())
}

// Operand returns an expression as what is before a dot or an operator: in parentheses if it has an operator itself.
func Operand(source string) string {
	depth, quote, last := 0, rune(0), rune(0)
	for _, r := range source {
		switch {
		case quote != 0 && r == quote && last != '\\':
			quote = 0
		case quote != 0:
		case r == '\'' || r == '"':
			quote = r
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case depth == 0 && strings.ContainsRune("?:|&=<>!+-*/% \t\n", r) && (r != '?' || last != '.'): // .?field is no operator
			return "(" + source + ")"
		}
		last = r
	}
	return source
}

// OptionalTypeHint returns the end of a message about a value that may be missing, and is none of the Go type t: how to convert it, or
// "". Of is its type.
func OptionalTypeHint(t reflect.Type, of *cel.Type, source string) string {
	convert := ""
	switch isText := values.AcceptsType(t, cel.StringType); {
	case isText && of.Kind() == types.ListKind && of.Parameters()[0].Kind() == types.StringKind:
		convert = "x.join(',')"
	case isText && (of.Kind() == types.ListKind || of.Kind() == types.MapKind):
		convert = "json.marshal(x)"
	case isText && (of.Kind() == types.DynKind || isScalar(of)):
		convert = "string(x)"
	case values.AcceptsType(t, cel.IntType) && (of.Kind() == types.DynKind || of.Kind() == types.StringKind):
		convert = "int(x)"
	case values.AcceptsType(t, cel.BoolType) && of.Kind() == types.DynKind:
		convert = "bool(x)"
	case values.AcceptsType(t, cel.BoolType) && of.Kind() == types.StringKind:
		convert = "x == 'true'"
	default:
		return ""
	}
	return fmt.Sprintf("; write ${%s.optMap(x, %s)}", Operand(source), convert)
}

// TypeHint returns the end of a message about a value that is none of the Go type t: how to convert it, or "".
func TypeHint(t reflect.Type, out *cel.Type, source string) string {
	switch {
	case values.AcceptsType(t, cel.StringType):
		return StringHint(out, source)
	case out.Kind() == types.ListKind && values.AcceptsType(t, cel.ListType(cel.StringType)) && (isScalar(out.Parameters()[0]) || out.Parameters()[0].Kind() == types.DynKind):
		return "; write ${" + Operand(source) + ".map(x, string(x))}"
	case out.Kind() == types.DynKind && values.AcceptsType(t, cel.ListType(cel.StringType)):
		return "; if it is a list, write ${" + Operand(source) + ".map(x, string(x))}"
	case out.Kind() != types.StringKind && out.Kind() != types.DynKind:
		return ""
	case values.AcceptsType(t, cel.ListType(cel.StringType)):
		return "; for a list of one item, write ${[" + source + "]}"
	case values.AcceptsType(t, cel.IntType) && out.Kind() == types.DynKind:
		return "; write int(" + source + ")"
	case values.AcceptsType(t, cel.IntType):
		return "; write int(" + source + "), or give a parameter, or its items, the type integer"
	case values.AcceptsType(t, cel.BoolType):
		return BoolHint(out, source)
	}
	return ""
}
