// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates"
)

// Value returns the first sample value that a parameter accepts, or "".
func Value(t *templates.Template, p *templates.Param) string {
	candidates := p.Choices()
	if p.Minimum != nil {
		candidates = append(candidates, string(*p.Minimum))
	}
	candidates = append(candidates, p.Type.Sample(), "example.com", "https://example.com", "https://example.com:8443/path", "1", "/sample")
	candidates = append(candidates, Matching(p.Pattern)...)
	i := slices.IndexFunc(candidates, func(value string) bool { return t.Takes(p.Name, value) == nil })
	if i < 0 {
		return ""
	}
	return candidates[i]
}

// param returns the parameter that an expression reads: params.x, params.?x or has(params.x).
func param(e ast.Expr) (name string, ok bool) {
	var of ast.Expr
	switch {
	case e.Kind() == ast.SelectKind:
		of, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect:
		text, _ := e.AsCall().Args()[1].AsLiteral().(types.String)
		of, name = e.AsCall().Args()[0], string(text)
	default:
		return "", false
	}
	return name, of.Kind() == ast.IdentKind && of.AsIdent() == "params"
}

// setter sets parameters as users do, with annotations of the pod, its ServiceAccount or the namespace.
type setter struct {
	template *templates.Template
	fixed    []string // parameters that keep their values
}

// setParam gives a parameter a value.
func (s setter) setParam(w *world, name, text string, next func(*world) bool) bool {
	if slices.Contains(s.fixed, s.template.Name+"."+name) || s.template.Takes(name, text) != nil {
		return false
	}
	for _, p := range s.places(name) {
		return next(w.set(p, text))
	}
	return false
}

// hasParam gives an optional parameter a sample value, or removes its value.
func (s setter) hasParam(w *world, name string, want bool, next func(*world) bool) bool {
	if slices.Contains(s.fixed, s.template.Name+"."+name) {
		return false
	}
	if !want {
		for _, p := range s.places(name) {
			w = w.set(p, nil)
		}
		return next(w)
	}
	i := slices.IndexFunc(s.template.Spec.Params, func(p templates.Param) bool { return p.Name == name })
	return i >= 0 && s.setParam(w, name, Value(s.template, &s.template.Spec.Params[i]), next)
}

// places returns the annotations that may set a parameter, the pod's first.
func (s setter) places(name string) (all []path) {
	for i := range s.template.Spec.Params {
		p := &s.template.Spec.Params[i]
		if p.Name == name && p.Overridable(templates.ByPod) {
			all = append(all, path{"pod", "metadata", "annotations", s.template.Annotation(name)})
		}
		if p.Name == name && p.Overridable(templates.ByServiceAccount) {
			all = append(all, path{accountVariable, "annotations", s.template.Annotation(name)})
		}
		if p.Name == name && p.Overridable(templates.ByNamespace) {
			all = append(all, path{"ns", "annotations", s.template.Annotation(name)})
		}
	}
	return all
}
