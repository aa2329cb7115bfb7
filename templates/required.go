// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// conditionOf returns the field for the condition of a whole fragment, or "" for other objects.
func conditionOf(path string) string {
	switch {
	case path == "spec" || path == "spec.match" || path == "spec.pod" || path == "spec.pod.spec":
		return "spec.match.condition"
	case strings.HasPrefix(path, "spec.forEachContainer[") && (strings.HasSuffix(path, "].add") || strings.Count(path, ".") == 1):
		return "where"
	}
	return ""
}

// checkRequiredFields reports fields that the API requires and that are left out for some pods.
func (c *checker) checkRequiredFields(y *yaml.Node, o *part, t reflect.Type, field, path string) {
	s := shapeOf(t, field)
	some := false // whether one of s.some is always there
	for i, p := range o.parts {
		some = some || slices.Contains(s.some, o.names[i]) && !p.mayLack()
	}
	for i, p := range o.parts {
		name := o.names[i]
		at, sub := yamlChild(y, name), problem.JoinPath(path, name)
		if p.whole && needsValue(t, field, name) {
			p.pieces[0].Expression.SetOmittable(false)
		}
		switch {
		case !p.mayLack():
		case needsValue(t, field, name):
			c.reportProblem(at, sub, "is required, so it must have a value for every pod; leave out the whole object instead")
		case slices.Contains(s.one, name), slices.Contains(s.some, name) && !some:
			c.reportProblem(at, sub, "one of %s is required, so it must have a value for every pod; leave out the whole object instead", strings.Join(slices.Concat(s.one, s.some), ", "))
		case t == reflect.TypeFor[corev1.Volume]():
			c.reportProblem(at, sub, `without a source, the volume would be an emptyDir; write "${when}" in the volume instead`)
		}
	}
}

// needsValue reports whether a member must have a value: the API requires it, or its Go type writes it always.
func needsValue(t reflect.Type, field, name string) bool {
	f, ok := jsontree.StructFieldOf(t, name)
	return isRequired(t, field, name) || ok && f.Type.Kind() == reflect.String && !f.OmitEmpty
}
