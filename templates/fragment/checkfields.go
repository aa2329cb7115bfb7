// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/validation"
	"github.com/pillion-dev/pillion/templates/yamlnode"
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
func (c *Checker) checkRequiredFields(y *yaml.Node, o *Node, t reflect.Type, field, path string) {
	s := validation.ShapeOf(t, field)
	some := false // whether one of s.some is always there
	choices := 0  // fields of s.one that have a condition
	for i, p := range o.parts {
		if slices.Contains(s.One, o.names[i]) && p.when != nil {
			choices++
		}
		some = some || slices.Contains(s.Some, o.names[i]) && !p.mayLack()
	}
	for i, p := range o.parts {
		name := o.names[i]
		at, sub := yamlnode.Child(y, name), problem.JoinPath(path, name)
		if p.whole && validation.NeedsValue(t, field, name) {
			p.pieces[0].Expression.SetOmittable(false)
		}
		switch {
		case !p.mayLack():
		case validation.NeedsValue(t, field, name):
			c.ReportProblem(at, sub, `is required, so it must have a value for every pod; to leave out the whole %s, write "${when}" in it, and .value() here`, whatMayLack(field, path))
		case slices.Contains(s.One, name) && choices > 1 && p.when != nil: // already reported
		case slices.Contains(s.One, name), slices.Contains(s.Some, name) && !some:
			instead := `to leave out the whole object, write "${when}" in it, and .value() here`
			if p.when != nil {
				instead = `to leave out the whole object, write "${when}" in it, and not here`
			}
			c.ReportProblem(at, sub, "one of %s is required, so it must have a value for every pod; %s", strings.Join(slices.Concat(s.One, s.Some), ", "), instead)
		case t == reflect.TypeFor[corev1.Volume]():
			c.ReportProblem(at, sub, `without a source, the volume would be an emptyDir; write "${when}" in the volume instead`)
		}
	}
}

// whatMayLack returns a word for the object that can be left out if a field of the object at a path has no value: the object itself,
// or the one that needs it. For example, a probe needs an action, so for the port of an action it is the probe.
func whatMayLack(field, path string) string {
	if validation.IsChoice(field) {
		path = path[:max(strings.LastIndex(path, "."), 0)]
	}
	if strings.HasSuffix(path, "]") {
		return "item"
	}
	return path[strings.LastIndex(path, ".")+1:]
}

// hasShape checks which keys an object has.
func (c *Checker) hasShape(y *yaml.Node, t reflect.Type, field, path string) {
	s := validation.ShapeOf(t, field)
	for _, f := range jsontree.StructFields(t) {
		if validation.IsRequired(t, field, f.JSON) && yamlnode.Child(y, f.JSON) == nil && !strings.HasSuffix(path, "].add") { // to a container that has it
			c.ReportProblem(y, problem.JoinPath(path, f.JSON), "is missing")
		}
	}
	c.ForbidKeys(y, path, "a template may not set this", s.Never...)
	c.ForbidKeys(y, path, "if its feature gate is off, the API server drops this field and then rejects the pod, so a template may not set it", s.Dropped...)
	c.ForbidKeys(y, path, "the kubelet does not run this, and stops a container with such a postStart hook; use httpGet, exec or sleep", s.Unrun...)
	fieldsOf := func(names ...string) (there []string) {
		for _, name := range names {
			if yamlnode.Child(y, name) != nil {
				there = append(there, name)
			}
		}
		return there
	}
	there := fieldsOf(slices.Concat(s.One, s.Some)...)
	if most := fieldsOf(s.Most...); len(most) > 1 {
		c.ReportProblem(y, path, "has %s; only one of them is allowed", strings.Join(most, " and "))
	}
	switch all := strings.Join(slices.Concat(s.One, s.Some), ", "); {
	case slices.ContainsFunc(slices.Concat(s.Dropped, s.Unrun), func(name string) bool { return yamlnode.Child(y, name) != nil }): // already reported
	case len(there) == 0 && all != "":
		c.ReportProblem(y, path, "must have one of %s", all)
	case len(there) > 1 && len(s.One) > 0:
		c.ReportProblem(y, path, "has %s; only one of them is allowed%s", strings.Join(there, " and "), chooseHint(y, there))
	}
}

// chooseHint returns how an object has one of two fields for each pod, if both fields have conditions.
func chooseHint(y *yaml.Node, fields []string) string {
	for _, name := range fields {
		if yamlnode.Child(yamlnode.Child(y, name), WhenKey) == nil {
			return ""
		}
	}
	return fmt.Sprintf("; to choose one for each pod, write one expression in place of the object, as in ${params.secure ? {'%s': {...}} : {'%s': {...}}}", fields[0], fields[1])
}

// checkObjectRules applies the rules to the known values of the object. The part keeps the rules that
// depend on other values.
func (c *Checker) checkObjectRules(y *yaml.Node, o *Node, all []validation.ObjectRule, path string) {
	later, wrong := validation.CheckPartial(all, o)
	for _, err := range wrong {
		c.ReportProblem(y, path, "%v", err)
	}
	o.rules = append(o.rules, later...)
}

// needsItems checks a list or a map that must not be empty. If all of it may be left out for some pods, its part gets the rule.
func (c *Checker) needsItems(y *yaml.Node, p *Node, field, path string) {
	rules := validation.ListRules(field)
	if c.scope == nil || len(rules) == 0 || slices.ContainsFunc(p.parts, func(item *Node) bool { return !item.mayLack() && !item.makesItems() }) {
		return
	}
	if len(y.Content) == 0 {
		c.ReportProblem(y, path, "%v", validation.ErrEmpty)
	}
	p.rules = append(p.rules, rules...)
}
