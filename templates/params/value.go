// SPDX-License-Identifier: Apache-2.0

// Package params has the parameters of templates: their types, and their values from the annotations of the pod, its
// ServiceAccount and its namespace. Everything that Pillion knows about a type of parameters is a row of one table.
package params

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// The sources of a parameter's value. Unset is that of an optional parameter without a value.
const (
	FromPod            = "pod"
	FromServiceAccount = "ServiceAccount"
	FromNamespace      = "namespace"
	FromDefault        = "default"
	Unset              = "unset"
)

// Value is a parameter's value and its source.
type Value struct {
	Name   string `json:"name"`
	Text   string `json:"value"`
	Source string `json:"source"` // pod, ServiceAccount, namespace, default or unset
	// Annotation is the annotation of another product that has the value, or the prefix of several.
	Annotation string `json:"annotation,omitempty"`

	cel ref.Val // nil if unset
}

// String returns the value for tests and logs.
func (v Value) String() string { return fmt.Sprintf("%s = %q (%s)", v.Name, v.Text, v.Source) }

// Values are the values of a template's parameters in the order of declaration.
type Values []Value

// CEL returns the value for expressions, or nil if it is unset.
func (v *Value) CEL() ref.Val { return v.cel }

// CEL returns the value of a parameter for expressions. It is an error value if the parameter has none.
func (v Values) CEL(name string) ref.Val {
	for i := range v {
		if v[i].Name == name && v[i].cel != nil {
			return v[i].cel
		}
	}
	return types.NewErr("no such parameter: %s", name)
}

// LookUp returns a parameter's value, and false if it has none.
func (v Values) LookUp(name string) (any, bool) { return v.CEL(name), v.IsSet(name) }

// IsSet reports whether a parameter has a value. An optional one may lack it.
func (v Values) IsSet(name string) bool {
	return slices.ContainsFunc(v, func(value Value) bool { return value.Name == name && value.cel != nil })
}

// IsValid reports whether a parameter is valid: it has a valid value, or needs none.
func (v Values) IsValid(name string) bool {
	return slices.ContainsFunc(v, func(value Value) bool { return value.Name == name })
}

// AnyName is the rest of an annotation's key in messages about a prefix.
const AnyName = "NAME"
