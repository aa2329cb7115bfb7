// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Candidates returns values that a parameter accepts: samples, and strings that match its pattern.
func Candidates(t *templates.Template, p *v1alpha1.Param) (all []string) {
	candidates := append(params.Samples(p), stringMatching(p.Pattern))
	if p.Items != nil {
		candidates = append(candidates, stringMatching(p.Items.Pattern))
	}
	for _, value := range candidates {
		if t.Takes(p.Name, value) == nil {
			all = appendNew(all, value)
		}
	}
	return all
}

// Value returns the first sample value that a parameter accepts, or "".
func Value(t *templates.Template, p *v1alpha1.Param) string {
	for _, value := range Candidates(t, p) {
		return value
	}
	return ""
}

// Setting is what annotations do with a parameter: they give it a value, or none of them sets it.
type Setting struct {
	Value string // as users write it
	Unset bool
}

// Settings are those of some parameters, by their names. Other parameters keep their values.
type Settings map[string]Setting

// Merge returns the settings of both. If they differ about a parameter, it has the first one, and Merge returns false.
func (s Settings) Merge(other Settings) (both Settings, same bool) {
	both, same = Settings{}, true
	maps.Copy(both, other)
	for name, setting := range s {
		if had, ok := other[name]; ok && had != setting {
			same = false
		}
		both[name] = setting
	}
	return both, same
}

// IsSettable reports whether annotations may set a parameter.
func IsSettable(p *v1alpha1.Param) bool { return len(annotationPlaces(p)) > 0 }

// SetParams returns a copy of a situation with other annotations, so that the template's parameters have these settings. It returns
// false if a parameter must not have its value, or if no annotation may set it.
func SetParams(t *templates.Template, from Situation, settings Settings) (Situation, bool) {
	w, err := newWorld(from)
	if err != nil {
		return from, false
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		var ok bool
		if w, ok = (setter{template: t}).withParam(w, name, settings[name]); !ok {
			return from, false
		}
	}
	pod, err := json.Marshal(w.doc["pod"])
	if err != nil {
		return from, false
	}
	to := from
	to.Pod, to.Namespace = pod, w.toInput().Namespace
	to.Namespace.Known = from.Namespace.Known
	return to, true
}

// InputOf returns what the template's expressions read in a situation. It returns false if a parameter has no valid value.
func InputOf(t *templates.Template, s Situation) (*cel.Input, params.Values, bool) {
	w, err := newWorld(s)
	if err != nil {
		return nil, nil, false
	}
	in := w.toInput()
	values, err := setter{template: t}.paramValues(w, in)
	return in, values, err == nil
}

// setter sets the parameters of a template as users do, with annotations.
type setter struct {
	template *templates.Template
	fixed    []string // parameters ("template.param") that keep their values
}

// paramValues returns the values of the parameters in a world.
func (s setter) paramValues(w *world, in *cel.Input) (params.Values, error) {
	return s.template.Values(w.nodeAt(path{"pod", "metadata", "annotations"}), in.ServiceAccount, &in.Namespace)
}

// withParam returns a copy of the world with other annotations, so that a parameter has this setting. It returns false if the
// parameter must not have its value, or if no annotation may set it.
func (s setter) withParam(w *world, name string, set Setting) (*world, bool) {
	t, p := s.template, findParam(s.template, name)
	if p == nil || slices.Contains(s.fixed, t.Name+"."+name) {
		return nil, false
	}
	places := annotationPlaces(p)
	for _, at := range places {
		for _, child := range w.childPaths(at) {
			if key := child[len(at)].(string); key == t.Key(p) || p.Reads(key) {
				w = w.withValue(child, nil)
			}
		}
	}
	if set.Unset {
		return w, true
	}
	if len(places) == 0 || t.Takes(name, set.Value) != nil {
		return nil, false
	}
	annotations := t.Annotations(p, set.Value)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		w = w.withValue(places[0].childPath(key), annotations[key])
	}
	return w, true
}

func findParam(t *templates.Template, name string) *v1alpha1.Param {
	i := slices.IndexFunc(t.Spec.Params, func(p v1alpha1.Param) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Spec.Params[i]
}

// annotationPlaces returns the objects with annotations that may set a parameter, the pod's first.
func annotationPlaces(p *v1alpha1.Param) (all []path) {
	if p.Overridable(v1alpha1.ByPod) {
		all = append(all, path{"pod", "metadata", "annotations"})
	}
	if p.Overridable(v1alpha1.ByServiceAccount) {
		all = append(all, path{request.AccountVariable, "annotations"})
	}
	if p.Overridable(v1alpha1.ByNamespace) {
		all = append(all, path{"ns", "annotations"})
	}
	return all
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
