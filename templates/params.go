// SPDX-License-Identifier: Apache-2.0

package templates

import (
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
	MaxLength     *int        `json:"maxLength,omitempty"` // bytes, default 256
	OverridableBy []Overrider `json:"overridableBy,omitempty"`
	Description   string      `json:"description,omitempty"`
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

	cel ref.Val // nil if unset
}

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
	row      *paramType
	key      string // of its annotation
	preset   Value  // the default, or unset
	pattern  *regexp.Regexp
	min, max *bound
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
	if limit := p.Length(); len(text) > limit {
		return nil, fmt.Errorf("is %d bytes long; at most %d are allowed", len(text), limit)
	}
	value, err := p.typed(text)
	if err != nil {
		return nil, err
	}
	switch {
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, Scalar(text)):
		return nil, fmt.Errorf("is %q; it must be one of %s%s", text, strings.Join(p.Choices(), ", "), DidYouMean(text, p.Choices()))
	case p.pattern != nil && !p.pattern.MatchString(text):
		return nil, fmt.Errorf("is %q; it must match %s", text, p.Pattern)
	case p.min != nil && p.min.cmp(text) < 0:
		return nil, fmt.Errorf("is %q; it must be at least %s", text, p.min.text)
	case p.max != nil && p.max.cmp(text) > 0:
		return nil, fmt.Errorf("is %q; it must be at most %s", text, p.max.text)
	}
	return value, nil
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

// Length returns the maximum length of a value in bytes.
func (p *Param) Length() int {
	const usual = 256
	if p.MaxLength != nil {
		return *p.MaxLength
	}
	return usual
}

func (p *param) typed(text string) (ref.Val, error) {
	value, err := p.row.parse(text)
	if err != nil {
		return nil, fmt.Errorf("is %q; it must be %s", text, p.row.words)
	}
	return value, nil
}
