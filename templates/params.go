// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Param is a value of a template that pods and namespaces may set by annotation.
type Param struct {
	Name          string      `json:"name"`
	Type          ParamType   `json:"type,omitempty"` // default string
	Default       *Scalar     `json:"default,omitempty"`
	Optional      bool        `json:"optional,omitempty"` // it may have no value
	Enum          []Scalar    `json:"enum,omitempty"`
	Pattern       string      `json:"pattern,omitempty"` // RE2 for the whole value
	Minimum       *Scalar     `json:"minimum,omitempty"`
	Maximum       *Scalar     `json:"maximum,omitempty"`
	MaxLength     *int        `json:"maxLength,omitempty"`  // bytes, default 256
	Items         *ParamItems `json:"items,omitempty"`      // of a list, or the values of a map
	MaxItems      *int        `json:"maxItems,omitempty"`   // of a list or a map, default 64
	KeyPattern    string      `json:"keyPattern,omitempty"` // RE2 for the keys of a map
	Keys          []string    `json:"keys,omitempty"`       // of an object in JSON, of the objects in a list, or after a prefix
	Separator     string      `json:"separator,omitempty"`  // between key and value, default "="
	Annotation    string      `json:"annotation,omitempty"` // of another product, instead of <template>.pillion.dev/<name>
	Prefix        string      `json:"prefix,omitempty"`     // of the annotations that make up a map
	Message       string      `json:"message,omitempty"`    // what a value must be, in errors
	OverridableBy []Overrider `json:"overridableBy,omitempty"`
	Description   string      `json:"description,omitempty"`
}

// ParamItems defines the items of a list, or the values of a map.
type ParamItems struct {
	Type      ParamType `json:"type,omitempty"`
	Enum      []Scalar  `json:"enum,omitempty"`
	Pattern   string    `json:"pattern,omitempty"`
	Minimum   *Scalar   `json:"minimum,omitempty"`
	Maximum   *Scalar   `json:"maximum,omitempty"`
	MaxLength *int      `json:"maxLength,omitempty"`
}

// Scalar is a string that YAML may contain without quotes, for example 5, true and 64Mi.
type Scalar string

// Overrider is a kind of object whose annotations may set a parameter.
type Overrider string

// The kinds of objects whose annotations may set a parameter. If several do, the first one wins. By
// default, a ServiceAccount may not: no template reads ServiceAccounts unless its author asks for it.
const (
	ByPod            Overrider = "Pod"
	ByServiceAccount Overrider = "ServiceAccount"
	ByNamespace      Overrider = "Namespace"
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

func (v Values) get(name string) ref.Val {
	for i := range v {
		if v[i].Name == name && v[i].cel != nil {
			return v[i].cel
		}
	}
	return types.NewErr("no such parameter: %s", name)
}

// find returns a parameter's value, and false if it has none.
func (v Values) find(name string) (any, bool) { return v.get(name), v.isSet(name) }

// isSet reports whether a parameter has a value. An optional one may lack it.
func (v Values) isSet(name string) bool {
	return slices.ContainsFunc(v, func(value Value) bool { return value.Name == name && value.cel != nil })
}

// has reports whether a parameter is valid: it has a valid value, or needs none.
func (v Values) has(name string) bool {
	return slices.ContainsFunc(v, func(value Value) bool { return value.Name == name })
}

// param is a compiled Param.
type param struct {
	Param
	row         *paramType
	length      int    // as Length returns it, which allocates
	key         string // of its annotation
	preset      Value  // the default, or unset
	pattern     *regexp.Regexp
	min, max    *bound
	items       *param // of a list or a map
	keysPattern *regexp.Regexp
}

// AnyName is the rest of an annotation's key in messages about a prefix.
const AnyName = "NAME"

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

// parse checks a string and returns its CEL value. An error describes what is allowed, and shows
// only the beginning of a long value.
func (p *param) parse(text string) (ref.Val, error) {
	if len(text) > p.length {
		return nil, fmt.Errorf("is %d bytes long; at most %d are allowed", len(text), p.length)
	}
	value, err := p.typed(text)
	if err != nil {
		return nil, err
	}
	switch {
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, Scalar(text)):
		return nil, p.mustBe(text, fmt.Sprintf("must be one of %s%s", strings.Join(p.Choices(), ", "), DidYouMean(text, p.Choices())))
	case p.pattern != nil && !p.pattern.MatchString(text):
		return nil, p.mustBe(text, "must match "+p.Pattern)
	case p.min != nil && p.min.cmp(text) < 0:
		return nil, p.mustBe(text, "must be at least "+p.min.text)
	case p.max != nil && p.max.cmp(text) > 0:
		return nil, p.mustBe(text, "must be at most "+p.max.text)
	}
	return value, nil
}

// mustBe returns the error for a value that is not allowed. The template's own message comes first.
func (p *param) mustBe(text, otherwise string) error {
	if p.Message != "" {
		otherwise = "must be " + p.Message
	}
	return fmt.Errorf("is %q; it %s", shortened(text), otherwise)
}

// Choices returns the values of an enumeration.
func (p *Param) Choices() []string { return texts(p.Enum...) }

func texts[T ~string](all ...T) []string {
	out := make([]string, len(all))
	for i := range all {
		out[i] = string(all[i])
	}
	return out
}

// Length returns the maximum length of a value in bytes. For a map with a prefix, it is that of all
// names and values together.
func (p *Param) Length() int {
	const usual, usualOfMany = 256, 4096
	switch {
	case p.MaxLength != nil:
		return *p.MaxLength
	case p.Type.row().parts != scalar:
		return usualOfMany
	}
	return usual
}

// Count returns the maximum number of items of a list or a map.
func (p *Param) Count() int {
	const usual = 64
	if p.MaxItems != nil {
		return *p.MaxItems
	}
	return usual
}

func (p *param) typed(text string) (ref.Val, error) {
	value, err := p.row.parse(p, text)
	if part, ok := errors.AsType[partError](err); ok {
		return nil, part
	}
	if err != nil {
		return nil, p.mustBe(text, "must be "+p.row.words)
	}
	return value, nil
}
