// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// shapeOf returns the shape of an object by its field, for example Container.livenessProbe, or by
// its type.
func shapeOf(t reflect.Type, field string) shape {
	if s, ok := shapes()[field]; ok {
		return s
	}
	return shapes()[t.Name()]
}

// isRequired reports whether an object of type t in a field must have a member.
func isRequired(t reflect.Type, field, name string) bool {
	return requiredFields()[t.Name()+"."+name] || requiredFields()[field+"."+name] || slices.Contains(shapeOf(t, field).required, name)
}

func objectRulesOf(t reflect.Type, field string) []objectRule {
	byType, byField := objectRules()[t.Name()], objectRules()[field]
	var filled []objectRule
	for _, f := range jsontree.StructFields(t) {
		if nonEmptyStrings()[field+"."+f.JSON] {
			filled = append(filled, hasText(f.JSON))
		}
	}
	if len(byField) == 0 && len(filled) == 0 {
		return byType
	}
	return slices.Concat(byType, byField, filled)
}

// hasText returns a rule for a string that must not be empty in some objects of its type.
func hasText(name string) objectRule {
	return objectRule{reads: []string{name}, check: func(n *jsontree.Node) error {
		if err := isNotEmpty.check(n.Get(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}}
}

var shapes = sync.OnceValue(func() map[string]shape { return mergeMaps(shapesOfContainers(), shapesOfVolumes()) })

var objectRules = sync.OnceValue(func() map[string][]objectRule { return mergeMaps(containerRules(), volumeRules()) })

var fieldRules = sync.OnceValue(func() map[string][]valueRule { return mergeMaps(valuesOfContainers(), valuesOfVolumes()) })

func mergeMaps[V any](all ...map[string]V) map[string]V {
	m := map[string]V{}
	for i := range all {
		maps.Copy(m, all[i])
	}
	return m
}

// hasShape checks which keys an object has.
func (c *checker) hasShape(y *yaml.Node, t reflect.Type, field, path string) {
	s := shapeOf(t, field)
	for _, f := range jsontree.StructFields(t) {
		if isRequired(t, field, f.JSON) && yamlChild(y, f.JSON) == nil && !strings.HasSuffix(path, "].add") { // to a container that has it
			c.reportProblem(y, problem.JoinPath(path, f.JSON), "is missing")
		}
	}
	c.forbidKeys(y, path, "a template may not set this", s.never...)
	c.forbidKeys(y, path, "if its feature gate is off, the API server drops this field and then rejects the pod, so a template may not set it", s.dropped...)
	c.forbidKeys(y, path, "the kubelet does not run this, and stops a container with such a postStart hook; use httpGet, exec or sleep", s.unrun...)
	var there []string
	for _, name := range slices.Concat(s.one, s.some) {
		if yamlChild(y, name) != nil {
			there = append(there, name)
		}
	}
	switch all := strings.Join(slices.Concat(s.one, s.some), ", "); {
	case slices.ContainsFunc(slices.Concat(s.dropped, s.unrun), func(name string) bool { return yamlChild(y, name) != nil }): // already reported
	case len(there) == 0 && all != "":
		c.reportProblem(y, path, "must have one of %s", all)
	case len(there) > 1 && len(s.one) > 0:
		c.reportProblem(y, path, "has %s; only one of them is allowed", strings.Join(there, " and "))
	}
}

// policed stands for the condition of a rule for which policies have conditions of their own.
const policed = "policed"

// objectRules applies the rules to the known values of the object. The part keeps the rules that
// depend on other values.
func (c *checker) objectRules(y *yaml.Node, o *part, all []objectRule, path string) {
	if len(all) == 0 {
		return
	}
	known := o.knownValue()
	known.Seal()
	for _, rule := range all {
		computed := func(when bool) bool {
			return slices.ContainsFunc(rule.reads, func(path string) bool { return o.isComputed(path, when) })
		}
		if rule.applies != nil && !rule.applies(o) {
			continue
		}
		later := valueRule{"", rule.check}
		if rule.policed {
			later.cel = policed
		}
		if computed(!rule.fewer) {
			o.rules = append(o.rules, later)
		} else if err := rule.check(&known); err != nil && computed(true) {
			o.rules = append(o.rules, later)
		} else if err != nil {
			c.reportProblem(y, path, "%v", err)
		}
	}
}

// Broken returns an error if an object of type t breaks a rule after a fragment was added to it.
func Broken(t reflect.Type, object, fragment *jsontree.Node) error {
	for _, rule := range objectRules()[t.Name()] {
		if !rule.own && slices.ContainsFunc(rule.reads, func(path string) bool {
			name, _, _ := strings.Cut(path, ".")
			return fragment.Get(name) != nil
		}) {
			if err := rule.check(object); err != nil {
				return err
			}
		}
	}
	return nil
}

// rulesFor returns the rules for a value. Some belong to its Go type: if a pod breaks them, the API
// server cannot decode it and rejects it, whatever the webhook's failurePolicy is. The others
// belong to its field, for example Container.image.
func rulesFor(t reflect.Type, field, path string) []valueRule {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var rules []valueRule
	typ, name, _ := strings.Cut(field, ".")
	switch {
	case t == reflect.TypeFor[quantity.Quantity]():
		rules = append(rules, isQuantity)
	case t == reflect.TypeFor[intstr.IntOrString]():
		rules = append(rules, fitsInt(32), isPort)
	case t.Kind() == reflect.Int32:
		rules = append(rules, fitsInt(32), isNotNegative)
	case (t.Kind() == reflect.Int || t.Kind() == reflect.Int64) && name != "tolerationSeconds":
		rules = append(rules, fitsInt(64), isNotNegative)
	case t.Kind() == reflect.Slice:
		return append(listRules(field), eachItem(rulesFor(t.Elem(), field, path)))
	case enumValues(t) != nil:
		rules = append(rules, isOneOf(enumValues(t)))
	}
	switch name {
	case "image", "name":
		if typ != "LocalObjectReference" && field != "ContainerPort.name" { // an empty reference means no reference
			rules = append(rules, isNotEmpty)
		}
	case "mountPath":
		rules = append(rules, isNotEmpty, isNotTokenPath(strings.HasPrefix(path, "spec.forEachContainer")))
	}
	if nonEmptyStrings()[field] || slices.Contains(shapes()[typ].required, name) || slices.Contains(shapes()[typ].one, name) {
		rules = append(rules, isNotEmpty)
	}
	return append(rules, fieldRules()[field]...)
}

// listRules returns the rules for a list or a map as a whole.
func listRules(field string) []valueRule {
	typ, name, _ := strings.Cut(field, ".")
	if nonEmptyLists()[field] || slices.Contains(shapes()[typ].one, name) {
		return []valueRule{hasItems}
	}
	return nil
}

// needsItems checks a list or a map that must not be empty. If all of it may be left out for some pods, its part gets the rule.
func (c *checker) needsItems(y *yaml.Node, p *part, field, path string) {
	rules := listRules(field)
	if c.scope == nil || len(rules) == 0 || slices.ContainsFunc(p.parts, func(item *part) bool { return !item.mayLack() && item.loop == nil }) {
		return
	}
	if len(y.Content) == 0 {
		c.reportProblem(y, path, "%v", errEmpty)
	}
	p.rules = append(p.rules, rules...)
}
