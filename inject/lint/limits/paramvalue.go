// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// ParamValue is a value of a parameter.
type ParamValue struct {
	Name string `json:"name"`
	// Value is as users write it. It is absent if none is known, or if the parameter is not set.
	Value string `json:"value,omitempty"`
	Unset bool   `json:"unset,omitempty"`
	// SetBy are the objects whose annotations may set the parameter, and Annotation is the key.
	SetBy      []v1alpha1.Overrider `json:"setBy"`
	Annotation string               `json:"annotation"`
}

// newParamValue returns a setting of a template's parameter with who may set it.
func newParamValue(t *templates.Template, name string, setting sample.Setting) ParamValue {
	i := slices.IndexFunc(t.Spec.Params, func(p v1alpha1.Param) bool { return p.Name == name })
	p := &t.Spec.Params[i]
	value := ParamValue{Name: name, Value: setting.Value, Unset: setting.Unset, Annotation: t.Key(p)}
	for _, by := range []v1alpha1.Overrider{v1alpha1.ByPod, v1alpha1.ByServiceAccount, v1alpha1.ByNamespace} {
		if p.Overridable(by) {
			value.SetBy = append(value.SetBy, by)
		}
	}
	return value
}

// describeParams returns the parameters and who may set them, for example "root=true (the pod or its namespace may set it)".
func describeParams(all []ParamValue) string {
	if len(all) == 0 {
		return "parameters"
	}
	var texts, setters []string
	for i := range all {
		p := &all[i]
		text := p.Name
		switch {
		case p.Unset:
			text = "no " + p.Name
		case p.Value != "":
			text += "=" + problem.Shorten(p.Value)
		}
		texts, setters = append(texts, text), append(setters, describeSetters(p.SetBy))
	}
	if len(texts) == 1 {
		return texts[0] + " (" + setters[0] + " may set it)"
	}
	if len(slices.Compact(slices.Clone(setters))) == 1 {
		return joinNames(texts) + " (" + setters[0] + " may set them)"
	}
	for i := range texts {
		texts[i] += " (" + setters[i] + " may set it)"
	}
	return joinNames(texts)
}

// describeSetters returns words for the objects whose annotations may set a parameter.
func describeSetters(all []v1alpha1.Overrider) string {
	words := map[v1alpha1.Overrider]string{v1alpha1.ByPod: "the pod", v1alpha1.ByServiceAccount: "its ServiceAccount", v1alpha1.ByNamespace: "its namespace"}
	var names []string
	for _, by := range all {
		names = append(names, words[by])
	}
	if len(names) == 1 {
		return "only " + names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
