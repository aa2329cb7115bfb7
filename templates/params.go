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

	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
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

// Param is a compiled Param.
type Param struct {
	v1alpha1.Param
	row         *paramType
	length      int    // as Length returns it, which allocates
	key         string // of its annotation
	preset      Value  // the default, or unset
	pattern     *regexp.Regexp
	min, max    *bound
	items       *Param // of a list or a map
	keysPattern *regexp.Regexp
}

// AnyName is the rest of an annotation's key in messages about a prefix.
const AnyName = "NAME"

// parseValue checks a string and returns its CEL value. An error describes what is allowed, and shows
// only the beginning of a long value.
func (p *Param) parseValue(text string) (ref.Val, error) {
	if len(text) > p.length {
		return nil, fmt.Errorf("is %d bytes long; at most %d are allowed", len(text), p.length)
	}
	value, err := p.parseAsType(text)
	if err != nil {
		return nil, err
	}
	switch {
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, v1alpha1.Scalar(text)):
		return nil, p.mustBe(text, fmt.Sprintf("must be one of %s%s", strings.Join(p.Choices(), ", "), problem.DidYouMean(text, p.Choices())))
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
func (p *Param) mustBe(text, otherwise string) error {
	if p.Message != "" {
		otherwise = "must be " + p.Message
	}
	return fmt.Errorf("is %q; it %s", problem.Shorten(text), otherwise)
}

// MaxLength returns the maximum length of a parameter's value in bytes. For a map with a prefix, it is
// that of all names and values together.
func MaxLength(p *v1alpha1.Param) int {
	const usual, usualOfMany = 256, 4096
	switch {
	case p.MaxLength != nil:
		return *p.MaxLength
	case rowOfType(p.Type).parts != scalar:
		return usualOfMany
	}
	return usual
}

func (p *Param) parseAsType(text string) (ref.Val, error) {
	value, err := p.row.parse(p, text)
	if part, ok := errors.AsType[partError](err); ok {
		return nil, part
	}
	if err != nil {
		return nil, p.mustBe(text, "must be "+p.row.words)
	}
	return value, nil
}
