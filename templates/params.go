// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
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

// Scalar is a text that may stand in YAML without quotes: 5, true and 64Mi alike.
type Scalar string

// ParamType is what a parameter's text must be. In expressions an integer is an
// int, a number a double, a boolean a bool; the others are strings.
type ParamType string

// The types of parameters.
const (
	StringParam   ParamType = "string"
	IntegerParam  ParamType = "integer"
	NumberParam   ParamType = "number"
	BooleanParam  ParamType = "boolean"
	QuantityParam ParamType = "quantity" // as resource.Quantity
	DurationParam ParamType = "duration" // as time.ParseDuration
)

// Overrider is who may set a parameter.
type Overrider string

// Pod and Namespace are where an annotation that sets a parameter may stand.
const (
	ByPod       Overrider = "Pod"
	ByNamespace Overrider = "Namespace"
)

const defaultMaxLength = 256

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
	key      string // of its annotation
	preset   Value  // the default
	pattern  *regexp.Regexp
	min, max *bound
}

func (p *Param) celType() *types.Type {
	switch p.Type {
	case IntegerParam:
		return types.IntType
	case NumberParam:
		return types.DoubleType
	case BooleanParam:
		return types.BoolType
	}
	return types.StringType
}

func (p *Param) overridable(by Overrider) bool {
	return p.OverridableBy == nil || slices.Contains(p.OverridableBy, by)
}

// bound is a minimum or maximum in the parameter's own order: number, quantity
// or duration; of a string the bound is on nothing.
type bound struct {
	text string
	cmp  func(value string) int // of the value to the bound
}

func newBound(t ParamType, text string) (*bound, error) {
	switch t {
	case IntegerParam, NumberParam:
		limit, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		return &bound{text, func(v string) int { f, _ := strconv.ParseFloat(v, 64); return compare(f, limit) }}, nil
	case QuantityParam:
		limit, err := ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a quantity", text)
		}
		return &bound{text, func(v string) int { q, _ := ParseQuantity(v); return q.Cmp(limit) }}, nil
	case DurationParam:
		limit, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration", text)
		}
		return &bound{text, func(v string) int { d, _ := time.ParseDuration(v); return compare(d, limit) }}, nil
	}
	return nil, fmt.Errorf("a %s has no minimum and no maximum", t)
}

// ParseQuantity is [resource.ParseQuantity] for texts that people write: with an
// exponent of many digits that one takes seconds to hours.
func ParseQuantity(text string) (resource.Quantity, error) {
	const long, digits = 64, 3
	if i := strings.IndexAny(text, "eE"); len(text) > long || i >= 0 && len(strings.TrimLeft(text[i+1:], "+-")) > digits {
		return resource.Quantity{}, resource.ErrFormatWrong
	}
	return resource.ParseQuantity(text)
}

func compare[T time.Duration | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// parse checks a text and gives its CEL value. The error says what is allowed,
// and shows no more of a long value than helps.
func (p *param) parse(text string) (ref.Val, error) {
	if limit := p.maxLength(); len(text) > limit {
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

func (p *param) maxLength() int {
	if p.MaxLength != nil {
		return *p.MaxLength
	}
	return defaultMaxLength
}

func (p *param) typed(text string) (ref.Val, error) {
	switch p.Type {
	case IntegerParam:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("is %q; it must be an integer", text)
		}
		return types.Int(i), nil
	case NumberParam:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f != f || f > 1e308 || f < -1e308 {
			return nil, fmt.Errorf("is %q; it must be a number", text)
		}
		return types.Double(f), nil
	case BooleanParam:
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("is %q; it must be true or false", text)
		}
		return types.Bool(text == "true"), nil
	case QuantityParam:
		if _, err := ParseQuantity(text); err != nil {
			return nil, fmt.Errorf("is %q; it must be a quantity such as 100m or 64Mi", text)
		}
	case DurationParam:
		if _, err := time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("is %q; it must be a duration such as 30s or 5m", text)
		}
	}
	return types.String(text), nil
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
		if !p.overridable(ByPod) {
			return refuse("sets a parameter that a pod may not set")
		}
	} else if v.Text, ok = ns.annotation(p.key); ok {
		v.Source = FromNamespace
		if !p.overridable(ByNamespace) {
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
