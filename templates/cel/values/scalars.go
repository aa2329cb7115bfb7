// SPDX-License-Identifier: Apache-2.0

package values

import (
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// scalarType is what YAML and expressions may write for a Go type of scalars.
type scalarType struct {
	words string
	tags  []string    // the YAML types that the API server accepts
	cel   []*cel.Type // the types of expressions for it
}

// scalarTypeOf returns false if the type is not a type of scalars.
func scalarTypeOf(t reflect.Type) (s scalarType, ok bool) {
	text := []string{"!!str", "!!timestamp"}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return scalarType{QuantityWords, append(text, "!!int", "!!float"), []*cel.Type{cel.StringType, cel.IntType}}, true
	case reflect.TypeFor[intstr.IntOrString]():
		return scalarType{"an integer or a string", append(text, "!!int"), []*cel.Type{cel.StringType, cel.IntType}}, true
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[[]byte]():
		return scalarType{"a string", text, nil}, true
	}
	switch t.Kind() {
	case reflect.Bool:
		return scalarType{"true or false", []string{"!!bool"}, []*cel.Type{cel.BoolType}}, true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return scalarType{"an integer", []string{"!!int"}, []*cel.Type{cel.IntType}}, true
	case reflect.String:
		return scalarType{"a string", text, []*cel.Type{cel.StringType}}, true
	}
	return scalarType{}, false
}

// IsScalar reports whether the API server writes values of type t as strings, numbers or booleans.
func IsScalar(t reflect.Type) bool {
	_, ok := scalarTypeOf(t)
	return ok
}

// DescribeType returns what a value of type t must be, for example "an integer".
func DescribeType(t reflect.Type) string {
	if s, ok := scalarTypeOf(t); ok {
		return s.words
	}
	switch {
	case t.Kind() != reflect.Slice:
		return "an object"
	case t.Elem().Kind() == reflect.String:
		return "a list of strings"
	}
	return "a list"
}

// AcceptsYAML reports whether the API server accepts a scalar of this YAML type for t.
func AcceptsYAML(y *yaml.Node, t reflect.Type) bool {
	s, _ := scalarTypeOf(t)
	if !slices.Contains(s.tags, y.ShortTag()) {
		return false
	}
	var i int64
	zero := reflect.Zero(t)
	return !zero.CanInt() || y.Decode(&i) == nil && !zero.OverflowInt(i)
}

// AcceptsType reports whether a Go field of type t accepts the JSON of a CEL value of type out: a scalar, or a list of scalars.
func AcceptsType(t reflect.Type, out *cel.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := scalarTypeOf(t); ok {
		return slices.ContainsFunc(s.cel, out.IsExactType)
	}
	// Not a map, because its keys would be structure.
	return t.Kind() == reflect.Slice && out.Kind() == types.ListKind && AcceptsType(t.Elem(), out.Parameters()[0])
}
