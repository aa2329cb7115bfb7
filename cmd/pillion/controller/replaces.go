// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
)

// scopeOf returns the templates that may replace a template or be replaced by it: those of the cluster, and for a
// template of a namespace also those of that namespace. They have only the fields of outlineTemplate.
func scopeOf(read reader, template *kube.Entry) *templates.Set {
	all := read.Of("")
	if template.Namespace != "" {
		all = append(slices.Clip(all), read.Of(template.Namespace)...)
	}
	set := &templates.Set{}
	for _, e := range all {
		set.Templates = append(set.Templates, outlineTemplate(e))
	}
	return set
}

// outlineTemplate returns a template with only the fields that decide which other template it replaces.
func outlineTemplate(template *kube.Entry) *templates.Template {
	t := &templates.Template{Name: template.Name, Namespace: template.Namespace}
	t.Spec.Replaces, t.Spec.Required = template.Replaces, template.Required
	return t
}

// whyMisreplaced returns what is wrong with spec.replaces of a template, or "".
func whyMisreplaced(scope *templates.Set, template *kube.Entry) string {
	why, _ := scope.Misreplaced(outlineTemplate(template))
	return why
}

// replacingNames returns the names of the templates that replace a template.
func replacingNames(scope *templates.Set, template *kube.Entry) (names []string) {
	for _, t := range scope.Templates {
		if t.Spec.Replaces == template.Name && t.Namespace == template.Namespace {
			names = append(names, t.Name)
		}
	}
	return names
}

// replacementsOf returns the templates that a template replaces, or that replace it.
func replacementsOf(read reader, template *kube.Entry) (found []*kube.Entry) {
	for _, other := range read.Of(template.Namespace) {
		if other.Name == template.Replaces || other.Replaces == template.Name {
			found = append(found, other)
		}
	}
	return found
}
