// SPDX-License-Identifier: Apache-2.0

// Package validation has what Kubernetes accepts in a pod: which fields an object must have, and rules for values and objects. They
// are those of the API server's validation (ValidatePodCreate) for a part of a fragment, and some of the kubelet's.
//
// Loading a template finds the mistakes that do not depend on the pod. A rule that reads computed values applies when they are known.
// The module e2e/validity compares all rules with Kubernetes' own code.
package validation

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// ShapeOf returns the shape of an object by its field, for example Container.livenessProbe, or by
// its type.
func ShapeOf(t reflect.Type, field string) Shape {
	if s, ok := shapes()[field]; ok {
		return s
	}
	return shapes()[t.Name()]
}

// IsChoice reports whether a field, for example Probe.httpGet, is one of those of which its object needs one.
func IsChoice(field string) bool {
	owner, name, _ := strings.Cut(field, ".")
	s := shapes()[owner]
	return slices.Contains(slices.Concat(s.One, s.Some, s.Most), name)
}

// IsRequired reports whether an object of type t in a field must have a member.
func IsRequired(t reflect.Type, field, name string) bool {
	return requiredFields()[t.Name()+"."+name] || requiredFields()[field+"."+name] || slices.Contains(ShapeOf(t, field).Required, name)
}

// ObjectRules returns the rules for an object of type t in a field, for example Container.livenessProbe.
func ObjectRules(t reflect.Type, field string) []ObjectRule {
	byType, byField := objectRules()[t.Name()], objectRules()[field]
	var filled []ObjectRule
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
func hasText(name string) ObjectRule {
	return ObjectRule{reads: []string{name}, check: func(n *jsontree.Node) error {
		if err := isNotEmpty.check(n.Get(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}}
}

var shapes = sync.OnceValue(func() map[string]Shape { return mergeMaps(shapesOfContainers(), shapesOfVolumes()) })

var objectRules = sync.OnceValue(func() map[string][]ObjectRule { return mergeMaps(containerRules(), volumeRules()) })

var fieldRules = sync.OnceValue(func() map[string][]ValueRule { return mergeMaps(valuesOfContainers(), valuesOfVolumes()) })

func mergeMaps[V any](all ...map[string]V) map[string]V {
	m := map[string]V{}
	for i := range all {
		maps.Copy(m, all[i])
	}
	return m
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

// ValueRules returns the rules for a value of type t in a field, at a path of the template. Some belong to its Go type: if a pod breaks them, the API
// server cannot decode it and rejects it, whatever the webhook's failurePolicy is. The others
// belong to its field, for example Container.image.
func ValueRules(t reflect.Type, field, path string) []ValueRule {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var rules []ValueRule
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
		return append(ListRules(field), ItemRules(t, field, path)...)
	case EnumValues(t) != nil:
		rules = append(rules, isOneOf(EnumValues(t)))
	}
	switch name {
	case "image", "name":
		if typ != "LocalObjectReference" && field != "ContainerPort.name" { // an empty reference means no reference
			rules = append(rules, isNotEmpty)
		}
	case "mountPath":
		rules = append(rules, isNotEmpty, isNotTokenPath(strings.HasPrefix(path, "spec.forEachContainer")))
	}
	if nonEmptyStrings()[field] || slices.Contains(shapes()[typ].Required, name) || slices.Contains(shapes()[typ].One, name) {
		rules = append(rules, isNotEmpty)
	}
	return append(rules, fieldRules()[field]...)
}

// ItemRules returns the rules for the items of a list of type t.
func ItemRules(t reflect.Type, field, path string) []ValueRule {
	return []ValueRule{eachItem(ValueRules(t.Elem(), field, path))}
}

// ListRules returns the rules for a list or a map in a field as a whole.
func ListRules(field string) []ValueRule {
	typ, name, _ := strings.Cut(field, ".")
	if nonEmptyLists()[field] || slices.Contains(shapes()[typ].One, name) {
		return []ValueRule{hasItems}
	}
	return nil
}

// NeedsValue reports whether a member must have a value: the API requires it, or its Go type writes it always.
func NeedsValue(t reflect.Type, field, name string) bool {
	f, ok := jsontree.StructFieldOf(t, name)
	return IsRequired(t, field, name) || ok && f.Type.Kind() == reflect.String && !f.OmitEmpty
}

// NeverOn returns the fields of a type that a computed object must not have on one of the operating systems of a template.
func NeverOn(os v1alpha1.OS, t reflect.Type, path string) []string {
	switch t {
	case reflect.TypeFor[corev1.SecurityContext]():
		if os.Includes(corev1.Windows) {
			return NotOnWindows()
		}
	case reflect.TypeFor[corev1.WindowsSecurityContextOptions]():
		if os.Includes(corev1.Linux) || strings.HasPrefix(path, "spec.forEachContainer") {
			return []string{"hostProcess"}
		}
	}
	return nil
}

// NotOnWindows returns the fields of a security context that a pod on Windows cannot have.
func NotOnWindows() []string {
	return []string{
		"appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
		"allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
	}
}
