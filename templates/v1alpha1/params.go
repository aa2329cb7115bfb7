// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
)

// Param is a value of a template that pods and namespaces may set by annotation.
//
// +kubebuilder:validation:XValidation:rule="!has(self.annotation) || !has(self.prefix)",message="has both annotation and prefix; leave one out"
type Param struct {
	// name begins with a lower-case letter, and has only letters, digits and _, because expressions
	// read the parameter as params.NAME.
	//
	// +kubebuilder:validation:MaxLength=62
	Name string `json:"name"`
	// type is string, the default, integer, number, boolean, quantity, duration, list, map or json.
	// With prefix, the default is map.
	Type ParamType `json:"type,omitempty"`
	// default is the value if no annotation sets the parameter, written as in an annotation. Without a
	// default, the pod or its namespace must set the parameter, unless it is optional.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Default *Scalar `json:"default,omitempty"`
	// optional is true if the parameter may have no value. Expressions read it as params.?NAME. The
	// default is false.
	Optional bool `json:"optional,omitempty"`
	// enum lists the allowed values.
	//
	// +listType=atomic
	Enum []Scalar `json:"enum,omitempty"`
	// pattern is a regular expression (RE2) for the whole value.
	Pattern string `json:"pattern,omitempty"`
	// minimum is the smallest allowed integer, number, quantity or duration.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Minimum *Scalar `json:"minimum,omitempty"`
	// maximum is the largest allowed integer, number, quantity or duration.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Maximum *Scalar `json:"maximum,omitempty"`
	// maxLength is the maximum length of a value in bytes. The default is 256, or 4096 for a list, a
	// map and JSON.
	MaxLength *int `json:"maxLength,omitempty"`
	// items is what each item of a list, or each value of a map, must be.
	Items *ParamItems `json:"items,omitempty"`
	// maxItems is the maximum number of items of a list or a map. The default is 64.
	MaxItems *int `json:"maxItems,omitempty"`
	// keyPattern is a regular expression (RE2) for the keys of a map. The default allows letters,
	// digits, '.', '_' and '-', with a letter or a digit at both ends.
	KeyPattern string `json:"keyPattern,omitempty"`
	// keys are the allowed keys of an object in JSON, or of the objects in a list. With prefix, they
	// are the names that may follow it. By default, all keys are allowed.
	//
	// +listType=set
	Keys []string `json:"keys,omitempty"`
	// separator is between the key and the value in a map. The default is "=".
	Separator string `json:"separator,omitempty"`
	// annotation is an annotation of another product that sets the parameter, instead of the
	// template's own.
	Annotation string `json:"annotation,omitempty"`
	// prefix is the beginning of the annotations of another product that end in a name. The parameter
	// is a map from these names to the values of the annotations.
	Prefix string `json:"prefix,omitempty"`
	// message is what a value must be, in the words of the users. Errors contain it instead of the
	// pattern.
	Message string `json:"message,omitempty"`
	// overridableBy lists the objects whose annotations may set the parameter: Pod, Namespace and
	// ServiceAccount. The default is Pod and Namespace. The Pod's value wins over the
	// ServiceAccount's, which wins over the Namespace's.
	//
	// +listType=set
	OverridableBy []Overrider `json:"overridableBy,omitempty"`
	// description is for readers of the template.
	Description string `json:"description,omitempty"`
}

// ParamItems defines the items of a list, or the values of a map.
type ParamItems struct {
	// type is string, the default, integer, number, boolean, quantity or duration.
	Type ParamType `json:"type,omitempty"`
	// enum lists the allowed values.
	//
	// +listType=atomic
	Enum []Scalar `json:"enum,omitempty"`
	// pattern is a regular expression (RE2) for the whole value.
	Pattern string `json:"pattern,omitempty"`
	// minimum is the smallest allowed integer, number, quantity or duration.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Minimum *Scalar `json:"minimum,omitempty"`
	// maximum is the largest allowed integer, number, quantity or duration.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Maximum *Scalar `json:"maximum,omitempty"`
	// maxLength is the maximum length of a value in bytes. The default is 256.
	MaxLength *int `json:"maxLength,omitempty"`
}

// ParamType is the name of a type of parameters. The zero value is a string.
//
// +kubebuilder:validation:Enum=string;integer;number;boolean;quantity;duration;list;map;json
type ParamType string

// Scalar is a string that YAML may contain without quotes, for example 5, true and 64Mi.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:Type=""
type Scalar string

// Overrider is a kind of object whose annotations may set a parameter.
//
// +kubebuilder:validation:Enum=Pod;ServiceAccount;Namespace
type Overrider string

// The kinds of objects whose annotations may set a parameter. If several do, the first one wins. By
// default, a ServiceAccount may not: no template reads ServiceAccounts unless its author asks for it.
const (
	ByPod            Overrider = "Pod"
	ByServiceAccount Overrider = "ServiceAccount"
	ByNamespace      Overrider = "Namespace"
)

// OfOthers reports whether the value comes from annotations of another product.
func (p *Param) OfOthers() bool { return p.Annotation != "" || p.Prefix != "" }

// Reads reports whether an annotation of another product has the value, or a part of it.
func (p *Param) Reads(key string) bool {
	if p.Prefix == "" {
		return p.Annotation != "" && key == p.Annotation
	}
	name, ok := strings.CutPrefix(key, p.Prefix)
	return ok && name != "" && (len(p.Keys) == 0 || slices.Contains(p.Keys, name))
}

// Overridable reports whether annotations of such an object may set the parameter.
func (p *Param) Overridable(by Overrider) bool {
	if p.OverridableBy == nil {
		return by != ByServiceAccount
	}
	return slices.Contains(p.OverridableBy, by)
}

// Needed reports whether the pod or its namespace must set the parameter.
func (p *Param) Needed() bool { return p.Default == nil && !p.Optional }

// Choices returns the values of an enumeration.
func (p *Param) Choices() []string {
	all := make([]string, len(p.Enum))
	for i := range all {
		all[i] = string(p.Enum[i])
	}
	return all
}

// Count returns the maximum number of items of a list or a map.
func (p *Param) Count() int {
	const usual = 64
	if p.MaxItems != nil {
		return *p.MaxItems
	}
	return usual
}
