// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Mistyped is a value that no API server can decode.
type Mistyped struct {
	Pointer string // JSON Pointer to the value
	Needs   string // what the value must be, in a sentence
	// Unquoted is the value, in JSON, if quotes make it what it must be.
	Unquoted string
}

// Sentence returns what the value must be, and how to write it. Written is the value as its author wrote it, which YAML may have decoded
// to another one: yes is true. If that is not known, Written is "".
func (m Mistyped) Sentence(written string) string {
	if m.Unquoted == "" {
		return m.Needs
	}
	return m.Needs + "; put it in quotes: " + strconv.Quote(cmp.Or(written, m.Unquoted))
}

// Mistyped returns the values that have another JSON type than the API defines. It ignores unknown fields, and types with a decoder of
// their own, for example quantities.
func (s *Schema) Mistyped(n *jsontree.Node) []Mistyped { return s.appendMistyped(n, "", nil) }

func (s *Schema) appendMistyped(n *jsontree.Node, at string, found []Mistyped) []Mistyped {
	if s.GoType == nil || s.ownEncoding || n.Kind() == jsontree.Null {
		return found
	}
	if want := wantedType(s.GoType, n); want != "" {
		m := Mistyped{Pointer: at, Needs: fmt.Sprintf("%s must be %s", describePlace(at), want)}
		if s.GoType.Kind() == reflect.String && n.Kind() != jsontree.Object && n.Kind() != jsontree.Array {
			m.Unquoted = n.String()
		}
		return append(found, m)
	}
	members := n.Members()
	for i := range members {
		m := &members[i]
		found = s.At(m.Name()).appendMistyped(m, at+"/"+jsontree.Escape(m.Name()), found)
	}
	items := n.Items()
	for i := range items {
		found = s.Elem.appendMistyped(&items[i], at+"/"+strconv.Itoa(i), found)
	}
	return found
}

// Unknown returns a sentence about each field that the API does not define. It does not search below an unknown field.
func (s *Schema) Unknown(n *jsontree.Node) []string { return s.appendUnknown(n, "", nil) }

func (s *Schema) appendUnknown(n *jsontree.Node, at string, found []string) []string {
	if s == nil || s.GoType == nil || s.ownEncoding {
		return found
	}
	members := n.Members()
	for i := range members {
		m := &members[i]
		name := m.Name()
		if field := s.At(name); field != unknown {
			found = field.appendUnknown(m, at+"/"+jsontree.Escape(name), found)
		} else if s.fields != nil {
			found = append(found, fmt.Sprintf("%s has no field %q%s", cmp.Or(Where(at), "the pod"), problem.Cut(name, 60), problem.DidYouMean(name, slices.Sorted(maps.Keys(s.fields)))))
		}
	}
	items := n.Items()
	for i := range items {
		found = s.Elem.appendUnknown(&items[i], at+"/"+strconv.Itoa(i), found)
	}
	return found
}

// describePlace returns the place in the form that users write. For a label or an annotation, it is the key.
func describePlace(pointer string) string {
	for prefix, what := range map[string]string{"/metadata/labels/": "the label ", "/metadata/annotations/": "the annotation "} {
		if key, ok := strings.CutPrefix(pointer, prefix); ok {
			return what + Unescape(key)
		}
	}
	return Where(pointer)
}

// wantedType returns what a value of a Go type must be in JSON, for example "a string", or "" if the value is that.
func wantedType(t reflect.Type, n *jsontree.Node) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want, is := "", false
	switch kind := n.Kind(); t.Kind() {
	case reflect.String:
		want, is = "a string", kind == jsontree.String
	case reflect.Bool:
		want, is = "true or false", kind == jsontree.True || kind == jsontree.False
	case reflect.Int32, reflect.Int64:
		want, is = "an integer", kind == jsontree.Number
	case reflect.Struct, reflect.Map:
		want, is = "an object", kind == jsontree.Object
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return ""
		}
		want, is = "a list", kind == jsontree.Array
	}
	if is {
		return ""
	}
	return want
}
