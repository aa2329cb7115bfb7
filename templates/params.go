// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
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
	Enum          []Scalar    `json:"enum,omitempty"`
	Pattern       string      `json:"pattern,omitempty"` // RE2, the whole value
	Minimum       *Scalar     `json:"minimum,omitempty"`
	Maximum       *Scalar     `json:"maximum,omitempty"`
	MaxLength     *int        `json:"maxLength,omitempty"` // bytes, default 256
	OverridableBy []Overrider `json:"overridableBy,omitempty"`
	Description   string      `json:"description,omitempty"`
}

// Scalar is a string that YAML may have without quotes: 5, true and 64Mi alike.
type Scalar string

// Overrider is who may set a parameter.
type Overrider string

// Pod and Namespace are where an annotation that sets a parameter may stand.
const (
	ByPod       Overrider = "Pod"
	ByNamespace Overrider = "Namespace"
)

// The places that a parameter's value comes from.
const (
	FromPod       = "pod"
	FromNamespace = "namespace"
	FromDefault   = "default"
)

// Value is a parameter's value and where it comes from.
type Value struct {
	Name   string `json:"name"`
	Text   string `json:"value"`
	Source string `json:"source"` // pod, namespace or default

	cel ref.Val
}

// Values are the values of a template's parameters in the order of declaration.
type Values []Value

func (v Values) get(name string) ref.Val {
	for i := range v {
		if v[i].Name == name {
			return v[i].cel
		}
	}
	return types.NewErr("no such parameter: %s", name)
}

func (v Values) has(name string) bool {
	return slices.ContainsFunc(v, func(value Value) bool { return value.Name == name })
}

// param is a compiled Param.
type param struct {
	Param
	row      *paramType
	key      string // of its annotation
	preset   Value  // the default
	pattern  *regexp.Regexp
	min, max *bound
}

// Overridable reports whether annotations of a Pod or a Namespace may set the parameter.
func (p *Param) Overridable(by Overrider) bool {
	return p.OverridableBy == nil || slices.Contains(p.OverridableBy, by)
}

// parse checks a text and gives its CEL value. The error says what is allowed,
// and shows no more of a long value than helps.
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
		return nil, fmt.Errorf("is %q; it must be one of %s%s", text, strings.Join(p.choices(), ", "), didYouMean(text, p.choices()))
	case p.pattern != nil && !p.pattern.MatchString(text):
		return nil, fmt.Errorf("is %q; it must match %s", text, p.Pattern)
	case p.min != nil && p.min.cmp(text) < 0:
		return nil, fmt.Errorf("is %q; it must be at least %s", text, p.min.text)
	case p.max != nil && p.max.cmp(text) > 0:
		return nil, fmt.Errorf("is %q; it must be at most %s", text, p.max.text)
	}
	return value, nil
}

func (p *param) choices() []string {
	var all []string
	for _, e := range p.Enum {
		all = append(all, string(e))
	}
	return all
}

// Length is the largest length of a value in bytes.
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

// InvalidValueError is a parameter's value that is not allowed, or none where there
// has to be one.
type InvalidValueError struct {
	Param  string
	Key    string // of the annotation
	Source string // pod or namespace, "" where nobody gives a value
	Text   string
	reason string
}

// Error is one sentence.
func (e *InvalidValueError) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("parameter %s has no value; set the annotation %s", e.Param, e.Key)
	}
	return fmt.Sprintf("the %s's annotation %s %s", e.Source, e.Key, e.reason)
}

// Values gives each parameter the value of the pod's annotation, else of the
// namespace's, else its default; podAnnotation is nil if the pod has none of the template's. Parameters without a
// valid value are left out; the error is an [*InvalidValueError] about the first of them. The values are to be read only.
func (t *Template) Values(podAnnotation func(key string) (string, bool), ns *Namespace) (values Values, first error) {
	switch {
	case len(t.Spec.Params) == 0:
		return nil, nil
	case podAnnotation == nil && len(ns.Annotations) == 0 && t.preset != nil:
		return t.preset, nil
	case podAnnotation == nil:
		podAnnotation = func(string) (string, bool) { return "", false }
	}
	values = make(Values, 0, len(t.Spec.Params))
	for _, p := range t.ordered {
		v, err := t.value(p, podAnnotation, ns)
		if err == nil {
			values = append(values, v)
		} else if first == nil {
			first = err
		}
	}
	return values, first
}

func (t *Template) value(p *param, podAnnotation func(string) (string, bool), ns *Namespace) (v Value, err error) {
	v = Value{Name: p.Name}
	refuse := func(reason string) (Value, error) {
		return v, &InvalidValueError{Param: p.Name, Key: p.key, Source: v.Source, Text: v.Text, reason: reason}
	}
	var ok bool
	if v.Text, ok = podAnnotation(p.key); ok {
		v.Source = FromPod
		if !p.Overridable(ByPod) {
			return refuse("sets a parameter that a pod may not set")
		}
	} else if v.Text, ok = ns.annotation(p.key); ok {
		v.Source = FromNamespace
		if !p.Overridable(ByNamespace) {
			return refuse("sets a parameter that a namespace may not set")
		}
	} else if p.Default != nil {
		return p.preset, nil
	} else {
		return refuse("")
	}
	cel, err := p.parse(v.Text)
	if err != nil {
		return refuse(err.Error())
	}
	v.cel = cel
	return v, nil
}

func (ns *Namespace) annotation(key string) (text string, ok bool) {
	if len(ns.Annotations) > 0 {
		text, ok = ns.Annotations[key]
	}
	return text, ok
}

// ParamNames are the names of the declared parameters, sorted.
func (t *Template) ParamNames() []string { return slices.Sorted(maps.Keys(t.params)) }

// Takes says why a parameter that the template has may not have that value ("is ..."); nil: it may.
func (t *Template) Takes(name, value string) error {
	_, err := t.params[name].parse(value)
	return err
}
