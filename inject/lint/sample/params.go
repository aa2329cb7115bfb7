// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Value returns the first sample value that a parameter accepts, or "".
func Value(t *templates.Template, p *v1alpha1.Param) string {
	candidates := append(params.Samples(p), stringsMatching(p.Pattern)...)
	if p.Items != nil {
		candidates = append(candidates, stringsMatching(p.Items.Pattern)...)
	}
	i := slices.IndexFunc(candidates, func(value string) bool { return t.Takes(p.Name, value) == nil })
	if i < 0 {
		return ""
	}
	return candidates[i]
}

// paramOf returns the parameter that an expression reads: params.x, params.?x or has(params.x).
func paramOf(e ast.Expr) (name string, ok bool) {
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
	p := s.findParam(name)
	if p == nil || slices.Contains(s.fixed, s.template.Name+"."+name) || len(annotationPlaces(p)) == 0 || s.template.Takes(name, text) != nil {
		return false
	}
	return next(w.withValues(annotationPlaces(p)[0], s.template.Annotations(p, text)))
}

// hasParam gives an optional parameter a sample value, or removes its value.
func (s setter) hasParam(w *world, name string, want bool, next func(*world) bool) bool {
	p := s.findParam(name)
	if p == nil || slices.Contains(s.fixed, s.template.Name+"."+name) {
		return false
	}
	if want {
		return s.setParam(w, name, Value(s.template, p), next)
	}
	for _, at := range annotationPlaces(p) {
		members, _ := w.valueAt(at).(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(members)) {
			if key == s.template.Key(p) || p.Reads(key) {
				w = w.withValue(at.childPath(key), nil)
			}
		}
	}
	return next(w)
}

func (s setter) findParam(name string) *v1alpha1.Param {
	i := slices.IndexFunc(s.template.Spec.Params, func(p v1alpha1.Param) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &s.template.Spec.Params[i]
}

// annotationPlaces returns the objects with annotations that may set a parameter, the pod's first.
func annotationPlaces(p *v1alpha1.Param) (all []path) {
	if p.Overridable(v1alpha1.ByPod) {
		all = append(all, path{"pod", "metadata", "annotations"})
	}
	if p.Overridable(v1alpha1.ByServiceAccount) {
		all = append(all, path{accountVariable, "annotations"})
	}
	if p.Overridable(v1alpha1.ByNamespace) {
		all = append(all, path{"ns", "annotations"})
	}
	return all
}
