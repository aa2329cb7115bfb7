// SPDX-License-Identifier: Apache-2.0

package params

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Report reports what is wrong with a field of a declared parameter, for example items.type or enum[0].
type Report func(field, format string, args ...any)

// Compile compiles a declared parameter and reports all that is wrong with it. It sets the declared type and default if
// these are left out and follow from the rest. Setting is the template's own annotation for the parameter.
func Compile(declared *v1alpha1.Param, setting string, report Report) *Param {
	if declared.Prefix != "" && declared.Type == "" {
		declared.Type = mapParam
	}
	declared.Type = rowOfType(declared.Type).name
	checkSource(declared, report)
	p := compileValue(declared, report)
	p.key = annotationKey(declared, setting)
	return p
}

// checkSource checks where the values of a parameter come from.
func checkSource(p *v1alpha1.Param, report Report) {
	if p.Annotation != "" && p.Prefix != "" {
		report("prefix", "is not allowed together with annotation; leave one out")
	}
	if p.Prefix != "" && p.Type != mapParam {
		report("type", "must be map: a prefix may select several annotations")
	}
	if p.Prefix != "" && p.Separator != "" {
		report("separator", "has no meaning with a prefix: each annotation has one value")
	}
	for _, key := range []struct{ field, value, whole string }{{"annotation", p.Annotation, p.Annotation}, {"prefix", p.Prefix, p.Prefix + "a"}} {
		if key.value == "" {
			continue
		}
		domain, _, _ := strings.Cut(key.value, "/")
		switch errs := validation.IsQualifiedName(key.whole); {
		case domain == v1alpha1.Group || strings.HasSuffix(domain, "."+v1alpha1.Group):
			report(key.field, "must not be in the domain %s, which is Pillion's own; leave it out, and users set TEMPLATE.%s/%s", v1alpha1.Group, v1alpha1.Group, p.Name)
		case len(errs) > 0:
			report(key.field, "is no key of an annotation: %s%s", problem.TrimPattern(errs[0]), prefixHint(key.value))
		case key.field == "prefix" && domain == key.value:
			report(key.field, "must begin with a domain, as in example.com/secret-")
		}
	}
}

// prefixHint returns a hint if a key has a * for several keys.
func prefixHint(key string) string {
	if prefix, ok := strings.CutSuffix(key, "*"); ok && strings.Contains(prefix, "/") {
		return "; for all annotations that begin with it, write prefix: " + prefix
	}
	return ""
}

// compileValue checks and compiles what values of a parameter must be.
func compileValue(declared *v1alpha1.Param, report Report) *Param {
	p := &Param{Param: *declared, row: rowOf(declared), length: MaxLength(declared)}
	p.checkMaxLength(report)
	p.compileItems(report)
	p.pattern = compilePattern("pattern", p.Pattern, p.length, report)
	p.compileBounds(report)
	for i, choice := range p.Enum {
		if _, err := p.parseAsType(string(choice)); err != nil {
			report(fmt.Sprintf("enum[%d]", i), "%v", err)
		}
	}
	if declared.Prefix != "" && p.Default == nil && !p.Optional && p.items != nil {
		p.Default = new(v1alpha1.Scalar) // no annotation with the prefix is an empty map
		declared.Default = p.Default
	}
	p.preset = Value{Name: p.Name, Source: Unset}
	if p.Default != nil && p.Optional {
		report("optional", "a parameter with a default always has a value; leave out optional or the default")
	} else if p.Default != nil {
		value, err := p.parseValue(string(*p.Default))
		if err != nil {
			report("default", "%v", err)
		}
		p.preset = Value{Name: p.Name, Text: string(*p.Default), Source: FromDefault, cel: value}
	}
	return p
}

// compileBounds compiles the minimum and the maximum.
func (p *Param) compileBounds(report Report) {
	var err error
	if p.Minimum != nil {
		if p.min, err = p.row.parseBound(string(*p.Minimum)); err != nil {
			report("minimum", "%v", err)
		}
	}
	if p.Maximum != nil {
		if p.max, err = p.row.parseBound(string(*p.Maximum)); err != nil {
			report("maximum", "%v", err)
		}
	}
	if p.min != nil && p.max != nil && p.min.cmp(p.max.text) < 0 {
		report("maximum", "%s is less than the minimum, %s", p.max.text, p.min.text)
	}
}

// compileItems checks and compiles what the items and keys of a value must be.
func (p *Param) compileItems(report Report) {
	of := p.row.parts
	p.checkOptions(report)
	if p.MaxItems != nil && (*p.MaxItems < 1 || *p.MaxItems > values.MaxItems) {
		report("maxItems", "must be from 1 to %d", values.MaxItems)
	}
	if of != ofItems && of != ofPairs {
		return
	}
	if strings.ContainsAny(p.Separator, ", \t") {
		report("separator", "must have no comma and no blank")
	}
	item := itemOf(&p.Param)
	if rowOfType(item.Type).parts != scalar {
		report("items.type", "must not be %s: an item has a single value", item.Type)
		return
	}
	p.items = compileValue(item, func(field, format string, args ...any) { report("items."+field, format, args...) })
	if p.items.pattern != nil {
		checkPatternWork("items.pattern", item.Pattern, p.length, report)
	}
	if of == ofPairs {
		p.checkPrefixKeys(report)
		p.keysPattern = compilePattern("keyPattern", cmp.Or(p.KeyPattern, usualKeys), p.length, report)
	}
}

// checkOptions reports the fields that have no meaning for the type.
func (p *Param) checkOptions(report Report) {
	of := p.row.parts
	for _, option := range []struct {
		field string
		set   bool
		ok    bool
	}{
		{"items", p.Items != nil, of == ofItems || of == ofPairs},
		{"maxItems", p.MaxItems != nil, of == ofItems || of == ofPairs},
		{"keyPattern", p.KeyPattern != "", of == ofPairs},
		{"keys", len(p.Keys) > 0, of == ofJSON || p.Prefix != ""},
		{"separator", p.Separator != "", of == ofPairs},
		{"enum", len(p.Enum) > 0, of == scalar},
		{"pattern", p.Pattern != "", of == scalar},
	} {
		if option.set && !option.ok {
			hint := ""
			if option.field == "keys" && of == ofPairs {
				hint = "; write a keyPattern"
			} else if of != ofJSON && (option.field == "enum" || option.field == "pattern") {
				hint = "; write it in items, for each item"
			}
			report(option.field, "has no meaning for a parameter of type %s%s", p.Type, hint)
		}
	}
}

// checkPrefixKeys checks the keys that may follow a prefix.
func (p *Param) checkPrefixKeys(report Report) {
	if p.Prefix == "" || len(p.Keys) == 0 {
		return
	}
	if p.KeyPattern != "" {
		report("keyPattern", "is not allowed together with keys; leave one out")
	}
	for _, name := range p.Keys {
		if errs := validation.IsQualifiedName(p.Prefix + name); name == "" || len(errs) > 0 {
			report("keys", "%q is no end of an annotation's key", problem.Shorten(name))
		}
	}
}

func (p *Param) checkMaxLength(report Report) {
	if p.MaxLength == nil {
		return
	}
	most, why := values.MaxText, "expressions cannot read longer strings"
	if p.Prefix != "" && p.row.parts != scalar {
		most, why = values.MaxOutput, "it is the length of all names and values together"
	}
	if *p.MaxLength < 1 {
		report("maxLength", "must be at least 1")
	}
	if *p.MaxLength > most {
		report("maxLength", "must be at most %d: %s", most, why)
	}
}

// compilePattern compiles a pattern for strings up to a length. It returns nil if there is none, or if it
// is wrong.
func compilePattern(field, pattern string, length int, report Report) *regexp.Regexp {
	if pattern == "" {
		return nil
	}
	if n := values.PatternSteps(pattern); n > values.MaxPatternSteps {
		report(field, "takes %d steps, and at most %d are allowed; repeat less in it", n, values.MaxPatternSteps)
		return nil
	}
	if !checkPatternWork(field, pattern, length, report) {
		return nil
	}
	if _, err := regexp.Compile(pattern); err != nil {
		report(field, "%v", err)
		return nil
	}
	return regexp.MustCompile("^(?:" + pattern + ")$")
}

// maxWork is the maximum number of steps of a pattern for a parameter's value.
const maxWork = 1 << 20

// checkPatternWork checks that matching strings of a length in total takes not too long.
func checkPatternWork(field, pattern string, length int, report Report) bool {
	n := values.PatternSteps(pattern)
	if n*length > maxWork {
		report(field, "takes %d steps for each of %d bytes, and at most %d are allowed; lower maxLength", n, length, maxWork)
	}
	return n*length <= maxWork
}
