// SPDX-License-Identifier: Apache-2.0

package params

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// paramType is everything that Pillion knows about a type of parameters. All
// values are written as strings, in annotations.
type paramType struct {
	name   v1alpha1.ParamType
	words  string // after "must be"
	sample string // a valid value
	cel    func(*v1alpha1.Param) *types.Type
	parse  func(p *Param, text string) (ref.Val, error) // returns a value of the type cel
	order  order                                        // nil if the type has no minimum and no maximum
	policy Policy                                       // empty if no policy can read a value
	parts  parts
}

// parts are what a value of a type consists of.
type parts int

const (
	scalar  parts = iota // nothing else
	ofItems              // items
	ofPairs              // keys with items
	ofJSON
)

// Policy has the CEL expressions by which an admission policy reads a parameter. In them, TEXT
// is the string. A policy may reject a value that parse accepts, but never the other way round.
type Policy struct {
	Check   string // reports whether the string is valid
	Value   string // the value, if it is valid
	Compare string // compares it with LIMIT; OP is >= or <=
}

// paramTypes returns the types of parameters. The rows have no keys, so an incomplete row does not
// compile.
func paramTypes() []paramType {
	return []paramType{
		{
			"string", "a string", "sample", fixedType(types.StringType),
			func(_ *Param, text string) (ref.Val, error) { return types.String(text), nil },
			nil,
			Policy{"true", "TEXT", ""},
			scalar,
		},
		{
			"integer", "an integer", "1", fixedType(types.IntType),
			func(_ *Param, text string) (ref.Val, error) {
				i, err := strconv.ParseInt(text, 10, 64)
				return types.Int(i), err
			},
			orderBy(parseNumber, cmp.Compare),
			// An integer of 19 digits may be too large, which is an error.
			Policy{`TEXT.matches("^[+-]?0*[0-9]{1,18}$")`, "int(TEXT)", "double(TEXT) OP double(LIMIT)"},
			scalar,
		},
		{
			"number", "a number", "1", fixedType(types.DoubleType),
			func(_ *Param, text string) (ref.Val, error) {
				f, err := parseNumber(text)
				return types.Double(f), err
			},
			orderBy(parseNumber, cmp.Compare),
			Policy{
				`TEXT.matches("^[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]{1,2})?$")`, "double(TEXT)", "double(TEXT) OP double(LIMIT)",
			},
			scalar,
		},
		{
			"boolean", "true or false", "true", fixedType(types.BoolType),
			func(_ *Param, text string) (ref.Val, error) {
				if text != "true" && text != "false" {
					return nil, strconv.ErrSyntax
				}
				return types.Bool(text == "true"), nil
			},
			nil,
			Policy{`TEXT in ["true", "false"]`, `TEXT == "true"`, ""},
			scalar,
		},
		{
			"quantity", values.QuantityWords, "1", fixedType(types.StringType),
			asText(values.ParseQuantity),
			orderBy(values.ParseQuantity, func(a, b resource.Quantity) int { return a.Cmp(b) }),
			Policy{
				// As in ParseQuantity, a string that takes too long to parse is no quantity.
				`size(TEXT) <= 64 && !TEXT.matches("[eE][-+]*[0-9]{4,}") && isQuantity(TEXT)`, "TEXT", "quantity(TEXT).compareTo(quantity(LIMIT)) OP 0",
			},
			scalar,
		},
		{
			"duration", "a duration such as 30s or 5m", "1s", fixedType(types.StringType),
			asText(time.ParseDuration),
			orderBy(time.ParseDuration, cmp.Compare),
			Policy{`TEXT.matches("^[+-]?(0|([0-9]{1,7}(\\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+)$")`, "TEXT", "duration(TEXT) OP duration(LIMIT)"},
			scalar,
		},
		{"list", "a list such as a,b", "sample", listType, parseList, nil, Policy{}, ofItems},
		{"map", "pairs such as a=1,b=2", "sample=sample", mapType, parseMap, nil, Policy{}, ofPairs},
		{"json", "an object or a list in JSON or YAML", "{}", fixedType(types.DynType), parseJSON, nil, Policy{}, ofJSON},
	}
}

// otherTypes are names of types in other languages.
var otherTypes = map[string]string{
	"int32": "integer", "int64": "integer", "bool": "boolean", "float": "number", "double": "number", "str": "string", "text": "string",
	"object": "json", "dict": "map", "array": "list", "strings": "list",
}

// SimilarType returns the type that another language calls by that word, or "".
func SimilarType(word string) string { return otherTypes[strings.ToLower(word)] }

// IsJSON reports whether the values of a parameter are objects or lists in JSON or YAML.
func IsJSON(p *v1alpha1.Param) bool { return rowOf(p).parts == ofJSON }

// The names of types that other code knows.
const (
	booleanParam v1alpha1.ParamType = "boolean"
	mapParam     v1alpha1.ParamType = "map"
)

// rowOf returns the row of a parameter's type. Other products accept more forms of a boolean than
// Pillion, so their annotations may have these too.
func rowOf(p *v1alpha1.Param) *paramType {
	row := rowOfType(p.Type)
	if row.name == booleanParam && p.OfOthers() {
		row.words, row.parse = "true or false, 1 or 0, yes or no, on or off", parseLooseBool
		row.policy.Check, row.policy.Value = looseBool(append(trueWords(), falseWords()...)), looseBool(trueWords())
	}
	return row
}

func trueWords() []string { return []string{"true", "t", "1", "yes", "y", "on"} }

func falseWords() []string { return []string{"false", "f", "0", "no", "n", "off"} }

func parseLooseBool(_ *Param, text string) (ref.Val, error) {
	text = strings.ToLower(text)
	if isYes := slices.Contains(trueWords(), text); isYes || slices.Contains(falseWords(), text) {
		return types.Bool(isYes), nil
	}
	return nil, strconv.ErrSyntax
}

// looseBool returns the CEL expression that reports whether a string is one of some words.
func looseBool(words []string) string {
	return fmt.Sprintf(`TEXT.lowerAscii() in ["%s"]`, strings.Join(words, `", "`))
}

// rowOfType returns the row of a type. An unknown type is already a problem of the template, and is
// treated as string.
func rowOfType(t v1alpha1.ParamType) *paramType {
	all := paramTypes()
	i := slices.IndexFunc(all, func(row paramType) bool { return row.name == t })
	return &all[max(i, 0)]
}

// Types returns the names of all types.
func Types() (names []string) {
	for _, row := range paramTypes() {
		names = append(names, string(row.name))
	}
	return names
}

// Words returns what a parameter's value must be, for example "an integer".
func Words(p *v1alpha1.Param) string { return rowOf(p).words }

// PolicyOf returns the expressions by which an admission policy reads a parameter's value. They are empty if no
// policy can read it.
func PolicyOf(p *v1alpha1.Param) Policy { return rowOf(p).policy }

// order parses a limit. It returns a function that compares values with it.
type order func(limit string) (compare func(value string) int, err error)

func orderBy[T any](parse func(string) (T, error), compare func(a, b T) int) order {
	return func(limit string) (func(string) int, error) {
		l, err := parse(limit)
		return func(text string) int { value, _ := parse(text); return compare(value, l) }, err
	}
}

func fixedType(t *types.Type) func(*v1alpha1.Param) *types.Type {
	return func(*v1alpha1.Param) *types.Type { return t }
}

// asText returns a parser that checks a value and returns the string.
func asText[T any](parse func(string) (T, error)) func(*Param, string) (ref.Val, error) {
	return func(_ *Param, text string) (ref.Val, error) {
		_, err := parse(text)
		return types.String(text), err
	}
}

// bound is a minimum or maximum in the type's own order.
type bound struct {
	text string
	cmp  func(value string) int // compares a value with the bound
}

func (t *paramType) parseBound(text string) (*bound, error) {
	if t.order == nil {
		return nil, fmt.Errorf("a %s has no minimum and no maximum", t.name)
	}
	compare, err := t.order(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not %s", text, t.words)
	}
	return &bound{text, compare}, nil
}

func parseNumber(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(f) || math.Abs(f) > 1e308) {
		err = strconv.ErrRange
	}
	return f, err
}

// Param is a compiled parameter: what its values must be.
type Param struct {
	v1alpha1.Param
	row         *paramType
	length      int    // as MaxLength returns it, which allocates
	key         string // of its annotation
	preset      Value  // the default, or unset
	pattern     *regexp.Regexp
	min, max    *bound
	items       *Param // of a list or a map
	keysPattern *regexp.Regexp
}

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
