// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Contains reports whether the pod has everything that the fragment has, with the same values. The pod may have more,
// for example defaults. A default that the API server would write into an absent field counts as a value of the pod.
func (s *Schema) Contains(pod, fragment *jsontree.Node) bool {
	switch {
	case fragment.Kind() == jsontree.Object:
		if pod.Kind() != jsontree.Object {
			return false
		}
		if s.GoType == ResourcesType() {
			pod = WithRequests(pod, fragment)
		}
		members := fragment.Members()
		for i := range members {
			f := s.At(members[i].Name())
			there, value := f.Effective(pod, pod.Get(members[i].Name())), f.Effective(pod, &members[i])
			if !f.holdsValue(there, value) && (there != nil || !f.Implies(pod, value, false)) {
				return false
			}
		}
		return true
	case fragment.Kind() == jsontree.Array:
		return pod.Kind() == jsontree.Array && s.containsItems(pod.Items(), fragment.Items())
	}
	return s.EqualScalars(pod, fragment)
}

// Equal reports whether two values have the same effect. Either may have defaults that the other one lacks.
func (s *Schema) Equal(a, b *jsontree.Node) bool { return s.Contains(a, b) && s.Contains(b, a) }

// ContainsNoMore reports whether a value has nothing that contained lacks. The caller knows that value contains the other one, so
// most values need no full comparison: scalars, and objects whose members have the same names and are scalars.
func (s *Schema) ContainsNoMore(value, contained *jsontree.Node) bool {
	if value.Kind() == jsontree.Object {
		members := contained.Members()
		if len(members) != len(value.Members()) {
			return s.Contains(contained, value)
		}
		for i := range members {
			if kind := members[i].Kind(); kind == jsontree.Object || kind == jsontree.Array || value.Get(members[i].Name()) == nil {
				return s.Contains(contained, value)
			}
		}
		return true
	}
	return value.Kind() != jsontree.Array || s.Contains(contained, value)
}

// holdsValue is Contains for a place at which either of both may have no value.
func (f *Field) holdsValue(pod, fragment *jsontree.Node) bool {
	if fragment.Kind() == jsontree.Null {
		return true
	}
	if pod == nil {
		return (f.AbsentIsZero || f.AlwaysSent) && IsZero(fragment) || f.Droppable(fragment)
	}
	return f.Contains(pod, fragment)
}

// Effective returns what the API server stores for a value in a field of an object: the default if the value is zero and means the same
// as no value, for example "/" for the empty path of an HTTP request, and otherwise the value, which may be nil.
func (f *Field) Effective(object, value *jsontree.Node) *jsontree.Node {
	if f.AbsentIsZero && value != nil && IsZero(value) {
		if implied := f.impliedValue(object, false); implied != nil {
			return implied
		}
	}
	return value
}

// Implies reports whether the API server writes this value into the field of an object that has no value there. OnHost reports
// whether the pod uses the node's network.
func (f *Field) Implies(object, value *jsontree.Node, onHost bool) bool {
	n := f.impliedValue(object, onHost)
	return n != nil && n.Kind() == value.Kind() && f.Contains(n, value)
}

// WithRequests returns the resources of a container with the requests that the API server derives from their limits, as far as the
// fragment has a request of the same resource.
func WithRequests(resources, fragment *jsontree.Node) *jsontree.Node {
	wanted, limits, requests := fragment.Get("requests").Members(), resources.Get("limits"), resources.Get("requests")
	var derived []jsontree.Node
	for i := range wanted {
		if limit := limits.Get(wanted[i].Name()); limit != nil && requests.Get(wanted[i].Name()) == nil {
			derived = append(derived, *limit)
		}
	}
	if len(derived) == 0 {
		return resources
	}
	all := jsontree.Members(slices.DeleteFunc(slices.Clone(resources.Members()), func(m jsontree.Node) bool { return m.Name() == "requests" })...)
	all.Set("requests", jsontree.Members(slices.Concat(requests.Members(), derived)...))
	return &all
}

func (s *Schema) containsItems(pod, fragment []jsontree.Node) bool {
	elem := s.Elem
	if elem == nil {
		elem = &Schema{}
	}
	if s.Shape != KeyedList && s.Shape != Set && len(pod) != len(fragment) {
		return false
	}
	for i := range fragment {
		switch s.Shape {
		case KeyedList:
			if found := s.Find(pod, &fragment[i]); found < 0 || !elem.Contains(&pod[found], &fragment[i]) {
				return false
			}
		case Set:
			if !elem.Among(pod, &fragment[i]) {
				return false
			}
		default:
			if !elem.Contains(&pod[i], &fragment[i]) {
				return false
			}
		}
	}
	return true
}

// Among reports whether the list of the pod has an equal item.
func (s *Schema) Among(pod []jsontree.Node, fragment *jsontree.Node) bool {
	for i := range pod {
		if s.Equal(&pod[i], fragment) {
			return true
		}
	}
	return false
}

// Find returns the index of the item of the pod that has the key of the fragment's item, or -1.
func (s *Schema) Find(pod []jsontree.Node, fragment *jsontree.Node) int {
	key, text := s.TextKey(fragment)
	for i := range pod {
		if text && s.Key != "mountPath" { // paths are compared in clean form
			if pod[i].Get(s.Key).IsText(key) {
				return i
			}
			continue
		}
		if other, ok := s.TextKey(&pod[i]); text && ok && other == key || !text && s.SameKey(&pod[i], fragment) {
			return i
		}
	}
	return -1
}

// TextKey returns the key of an item. Ok is false if the item has no key, or a key that is not one string.
func (s *Schema) TextKey(item *jsontree.Node) (key string, ok bool) {
	switch n := item.Get(s.Key); {
	case n.Kind() != jsontree.String || s.Key == "containerPort":
		return "", false
	case s.Key == "mountPath":
		return CleanPath(n.Text()), true // the same place in the container
	default:
		return n.Text(), true
	}
}

// CleanPath is like [path.Clean], but fast for clean paths, which nearly all are.
func CleanPath(p string) string {
	for i := range len(p) {
		if p[i] == '/' && (i+1 == len(p) || p[i+1] == '/' || p[i+1] == '.') || p[i] == '.' && i == 0 {
			return path.Clean(p)
		}
	}
	if p == "" {
		return path.Clean(p)
	}
	return p
}

// SameKey reports whether two items of the list have the same key. Items without a key differ.
func (s *Schema) SameKey(a, b *jsontree.Node) bool {
	if s.Key == "containerPort" {
		ka, kb := a.Get(s.Key), b.Get(s.Key)
		return ka != nil && kb != nil && SameNumber(ka, kb) && Protocol(a) == Protocol(b) // +listMapKey=protocol beside the tag's key
	}
	ka, okA := s.TextKey(a)
	kb, okB := s.TextKey(b)
	return okA && okB && ka == kb
}

// Protocol returns the protocol of a container's port.
func Protocol(port *jsontree.Node) string {
	if p := port.Get("protocol").Text(); p != "" {
		return p
	}
	return string(corev1.ProtocolTCP)
}

// IsZero reports whether a value is null, or one that encoding/json omits if the field has omitempty.
func IsZero(n *jsontree.Node) bool {
	switch n.Kind() {
	case jsontree.String:
		return n.IsText("")
	case jsontree.False, jsontree.Null:
		return true
	case jsontree.Number:
		return n.String() == "0" || n.String() == "-0"
	case jsontree.Array:
		return len(n.Items()) == 0
	case jsontree.Object:
		return len(n.Members()) == 0
	}
	return false
}

// EqualScalars reports whether two scalars mean the same here, for example 1 and 1000m.
func (s *Schema) EqualScalars(a, b *jsontree.Node) bool {
	switch {
	case s.Quantity && a.Kind() != 0:
		if a.Kind() == jsontree.String && a.SameText(b) && a.Text() != "" {
			return true
		}
		qa, errA := values.ParseQuantity(scalarText(a))
		qb, errB := values.ParseQuantity(scalarText(b))
		qa.RoundUp(resource.Milli) // rounded as the API server does
		qb.RoundUp(resource.Milli)
		return errA == nil && errB == nil && qa.Cmp(qb) == 0
	case a.Kind() != b.Kind():
		return false
	case a.Kind() == jsontree.String:
		return a.SameText(b)
	case a.Kind() == jsontree.Number:
		return SameNumber(a, b)
	}
	return true
}

func scalarText(n *jsontree.Node) string {
	if n.Kind() == jsontree.String {
		return n.Text()
	}
	return n.String()
}

// DependsOnOrder reports whether the order of variables matters: one refers to another one, or two have the same name.
func DependsOnOrder(env []jsontree.Node) bool {
	names := make(map[string]bool, len(env))
	for i := range env {
		name := env[i].Get("name").Text()
		if names[name] || strings.Contains(env[i].Get("value").Text(), "$(") {
			return true
		}
		names[name] = true
	}
	return false
}

// SameNumber reports whether two JSON numbers are the same number.
func SameNumber(a, b *jsontree.Node) bool {
	if a.String() == b.String() {
		return true
	}
	fa, errA := strconv.ParseFloat(a.String(), 64)
	fb, errB := strconv.ParseFloat(b.String(), 64)
	// Above 2^53, different integers are the same float. Only their strings differ.
	return errA == nil && errB == nil && fa == fb && fa < 1<<53 && fa > -1<<53
}
