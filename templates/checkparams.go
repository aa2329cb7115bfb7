// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// paramName allows names that are both CEL identifiers and valid in annotation keys.
const paramName = `^[a-z][A-Za-z0-9_]{0,61}$`

var validParam = regexp.MustCompile(paramName)

// validNameHint returns a suggestion for an invalid name, such as logDir for log-dir.
func validNameHint(name string) string {
	var valid strings.Builder
	for i, part := range strings.FieldsFunc(name, func(r rune) bool { return !validParam.MatchString("a" + string(r)) }) {
		if i > 0 {
			part = strings.ToUpper(part[:1]) + part[1:]
		} else {
			part = strings.ToLower(part[:1]) + part[1:]
		}
		valid.WriteString(part)
	}
	if s := valid.String(); s != name && validParam.MatchString(s) && !isReservedWord(s) {
		return fmt.Sprintf("; use %s", s)
	}
	return ""
}

// checkParams checks and compiles the declared parameters. It reports whether all are valid.
func (c *checker) checkParams(y *yaml.Node, t *Template) bool {
	before := len(c.problems)
	list := yamlChild(yamlChild(y, "spec"), "params")
	if list != nil && list.Kind != yaml.SequenceNode {
		return false
	}
	for i := range t.Spec.Params {
		p := &t.Spec.Params[i]
		if p.Prefix != "" && p.Type == "" {
			p.Type = mapParam
		}
		p.Type = rowOfType(p.Type).name
		path := fmt.Sprintf("spec.params[%d]", i)
		node := list.Content[i]
		switch {
		case !validParam.MatchString(p.Name):
			c.reportProblem(yamlAt(node, "name"), path+".name", "must begin with a-z and have only letters, digits and _, because expressions read it as params.NAME%s", validNameHint(p.Name))
		case isReservedWord(p.Name):
			c.reportProblem(yamlAt(node, "name"), path+".name", "%q is a reserved word in CEL; use another name", p.Name)
		case p.Name == AnnotationInjected || p.Name == AnnotationCustomize:
			c.reportProblem(yamlAt(node, "name"), path+".name", "%q is the name of one of Pillion's own annotations; use another name", p.Name)
		case t.params[p.Name] != nil:
			c.reportProblem(yamlAt(node, "name"), path+".name", "the parameter is declared twice")
		}
		c.checkParamSource(node, path, p)
		t.params[p.Name] = c.checkParam(node, path, p)
	}
	return len(c.problems) == before && t.params[""] == nil
}

// isReservedWord reports whether a name is a reserved word in CEL's grammar.
func isReservedWord(name string) bool {
	switch name {
	case "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in",
		"let", "loop", "package", "namespace", "null", "return", "true", "var", "void", "while":
		return true
	}
	return false
}

func (c *checker) checkParam(node *yaml.Node, path string, declared *v1alpha1.Param) *param {
	p := &param{Param: *declared, row: rowOf(declared), length: MaxLength(declared)}
	var err error
	c.checkMaxLength(node, path, p)
	c.checkParamParts(node, path, p)
	p.pattern = c.compilePattern(yamlAt(node, "pattern"), path+".pattern", p.Pattern, p.length)
	if p.Minimum != nil {
		if p.min, err = p.row.parseBound(string(*p.Minimum)); err != nil {
			c.reportProblem(yamlAt(node, "minimum"), path+".minimum", "%v", err)
		}
	}
	if p.Maximum != nil {
		if p.max, err = p.row.parseBound(string(*p.Maximum)); err != nil {
			c.reportProblem(yamlAt(node, "maximum"), path+".maximum", "%v", err)
		}
	}
	if p.min != nil && p.max != nil && p.min.cmp(p.max.text) < 0 {
		c.reportProblem(yamlAt(node, "maximum"), path+".maximum", "%s is less than the minimum, %s", p.max.text, p.min.text)
	}
	for i, choice := range p.Enum {
		if _, err := p.parseAsType(string(choice)); err != nil {
			c.reportProblem(yamlAt(node, "enum"), fmt.Sprintf("%s.enum[%d]", path, i), "%v", err)
		}
	}
	if declared.Prefix != "" && p.Default == nil && !p.Optional && p.items != nil {
		p.Default = new(v1alpha1.Scalar) // no annotation with the prefix is an empty map
		declared.Default = p.Default
	}
	p.preset = Value{Name: p.Name, Source: Unset}
	if p.Default != nil && p.Optional {
		c.reportProblem(yamlAt(node, "optional"), path+".optional", "a parameter with a default always has a value; leave out optional or the default")
	} else if p.Default != nil {
		value, err := p.parseValue(string(*p.Default))
		if err != nil {
			c.reportProblem(yamlAt(node, "default"), path+".default", "%v", err)
		}
		p.preset = Value{Name: p.Name, Text: string(*p.Default), Source: FromDefault, cel: value}
	}
	return p
}
