// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// node is a piece of a fragment: an object, a list, or a value.
type node struct {
	object    bool
	list      bool
	names     []string // of an object's members
	children  []node
	text      string    // a value, in CEL
	constant  bool      // the value is the same for every pod
	zero      bool      // what the API server takes for absent
	container bool      // it depends on the app container
	typ       *cel.Type // of a value that is not constant
	when      string    // says whether a list's item is there; "" is always
	whenApp   bool      // that depends on the app container
	path      string
	place     string // of a value that is not constant in the API, such as Container.image
	ruled     bool   // it has to keep to rules of that place
}

// get is an object's member, nil where it has none.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for i := range n.names {
		if n.names[i] == name {
			return &n.children[i]
		}
	}
	return nil
}

func (n *node) at(names ...string) *node {
	for _, name := range names {
		n = n.get(name)
	}
	return n
}

// items are a list's items.
func (n *node) items() []node {
	if n == nil || !n.list {
		return nil
	}
	return n.children
}

// without is an object without some members.
func (n *node) without(drop func(name string) bool) node {
	reduced := *n
	reduced.names, reduced.children = nil, nil
	for i, name := range n.names {
		if !drop(name) {
			reduced.names, reduced.children = append(reduced.names, name), append(reduced.children, n.children[i])
		}
	}
	return reduced
}

func join(path, name string) string {
	switch {
	case name == "":
		return path
	case strings.ContainsAny(name, "./[]"):
		return fmt.Sprintf("%s[%q]", path, name)
	}
	return path + "." + name
}

// fragment makes a node of a compiled fragment.
func (b *builder) fragment(f templates.Fragment, path string) node {
	n := node{path: path}
	if w := f.When(); w != nil {
		r := b.rewrite(path+".${when}", w)
		n.when, n.whenApp, n.container = r.text, r.container, r.container
	}
	switch {
	case f.Static() != nil:
		static := b.static(f.Static(), path)
		static.when, static.whenApp, static.container = n.when, n.whenApp, n.container
		return static
	case f.IsObject(), f.IsList():
		n.object, n.list, n.ruled = f.IsObject(), f.IsList(), f.Ruled()
		for name, child := range f.Children() {
			sub := join(path, name)
			if n.list {
				sub = fmt.Sprintf("%s[%d]", path, len(n.children))
			}
			c := b.fragment(child, sub)
			n.names, n.children = append(n.names, name), append(n.children, c)
			n.container = n.container || c.container
		}
		return n
	}
	n.place, n.ruled = f.Place()
	b.leaf(&n, f)
	return n
}

// leaf is a value with expressions.
func (b *builder) leaf(n *node, f templates.Fragment) {
	pieces, whole := f.Pieces()
	var texts []string
	for _, p := range pieces {
		if p.Expression == nil {
			texts = append(texts, quote(p.Literal))
			continue
		}
		r := b.rewrite(n.path, p.Expression)
		n.container = n.container || r.container
		if whole {
			n.text, n.typ = r.text, r.typ
			return
		}
		texts = append(texts, "string("+r.text+")")
	}
	n.text, n.typ = strings.Join(texts, " + "), types.StringType
}

// static makes a node of a value that is the same for every pod.
func (b *builder) static(t *tree.Node, path string) node {
	n := node{path: path, constant: true}
	switch t.Kind() {
	case tree.Object:
		n.object, n.zero = true, len(t.Members()) == 0
		for i := range t.Members() {
			m := &t.Members()[i]
			n.names, n.children = append(n.names, m.Name()), append(n.children, b.static(m, join(path, m.Name())))
		}
	case tree.Array:
		n.list, n.zero = true, len(t.Items()) == 0
		for i := range t.Items() {
			n.children = append(n.children, b.static(&t.Items()[i], fmt.Sprintf("%s[%d]", path, i)))
		}
	case tree.String:
		n.text, n.zero = quote(t.Text()), t.IsText("")
	default:
		n.text = t.String()
		n.zero = n.text == "false" || n.text == "0"
	}
	return n
}

// value is the node in CEL, as a value of type t; name is the name of its type
// where it is a struct, such as Object.spec.volumes.
func (n *node) value(t reflect.Type, name string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.list:
		return "[" + strings.Join(itemsOf(n.children, func(c *node) string { return c.item(t.Elem(), name) }), ", ") + "]"
	case n.object && t.Kind() == reflect.Map:
		return "{" + strings.Join(n.members(func(member string, c *node) string {
			return quote(member) + ": " + c.typed(t.Elem(), name)
		}), ", ") + "}"
	case n.object:
		return name + "{" + strings.Join(n.members(func(member string, c *node) string {
			return member + ": " + c.value(fieldType(t, member), name+"."+member)
		}), ", ") + "}"
	}
	return n.scalar(t)
}

// scalar: a quantity is always a text, so that a map of quantities has one type.
func (n *node) scalar(t reflect.Type) string {
	if t != reflect.TypeFor[resource.Quantity]() {
		return n.text
	}
	if !n.constant {
		return "string(" + n.text + ")"
	}
	if !strings.HasPrefix(n.text, `"`) {
		return quote(n.text)
	}
	return n.text
}

// item is a list's item, which may have a condition.
func (n *node) item(t reflect.Type, name string) string {
	if n.when == "" {
		return n.typed(t, name)
	}
	return "?" + optional(n.when, n.typed(t, name))
}

// typed is a value in a list or a map, which must all be of one type, where what
// is read of a pod has none.
func (n *node) typed(t reflect.Type, name string) string {
	if n.object || n.list || n.constant || t == reflect.TypeFor[resource.Quantity]() {
		return n.value(t, name)
	}
	return converted(n.text, n.typ)
}

// converted gives an expression the type that it has in a template.
func converted(text string, t *cel.Type) string {
	switch name := t.TypeName(); name {
	case "string", "int", "bool", "double", "uint":
		return name + "(" + text + ")"
	}
	return text
}

// optional is a value that is there where the condition holds.
func optional(condition, value string) string {
	return fmt.Sprintf("(%s) ? optional.of(%s) : optional.none()", condition, value)
}

func (n *node) members(f func(name string, child *node) string) []string {
	var all []string
	for i := range n.children {
		all = append(all, f(n.names[i], &n.children[i]))
	}
	return all
}

func itemsOf(nodes []node, f func(*node) string) []string {
	var all []string
	for i := range nodes {
		all = append(all, f(&nodes[i]))
	}
	return all
}

// contained says, in CEL, whether x has all that the node has, and the same:
// schema.contains of the engine. What is there besides, such as a default, does
// not matter.
func (b *builder) contained(n *node, t reflect.Type, x string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.list:
		checks := []string{fmt.Sprintf("size(%s) == %d", x, len(n.children))}
		for i := range n.children {
			if n.children[i].when != "" {
				b.problem(n.children[i].path, "${when} within a volume cannot be compared with the pod's")
			}
			checks = append(checks, b.contained(&n.children[i], t.Elem(), fmt.Sprintf("%s[%d]", x, i)))
		}
		return all(checks...)
	case n.object && t.Kind() == reflect.Map:
		return all(n.members(func(name string, c *node) string {
			return fmt.Sprintf("%s in %s && %s", quote(name), x, b.contained(c, t.Elem(), fmt.Sprintf("%s[%s]", x, quote(name))))
		})...)
	case n.object:
		return all(n.members(func(name string, c *node) string {
			f, _ := tree.StructFieldOf(t, name)
			return b.held(c, f, x+"."+name)
		})...)
	case t == reflect.TypeFor[resource.Quantity]():
		return fmt.Sprintf("quantity(%s).compareTo(quantity(%s)) == 0", x, n.scalar(t))
	}
	return fmt.Sprintf("%s == %s", x, n.text)
}

// held is contained for a field that may be absent.
func (b *builder) held(n *node, f tree.StructField, x string) string {
	inside := b.contained(n, f.Type, x)
	absentIsZero := f.Type.Kind() != reflect.Pointer && f.OmitEmpty
	switch {
	case absentIsZero && n.zero:
		return fmt.Sprintf("(!has(%s) || %s)", x, inside)
	case inside == "true":
		return fmt.Sprintf("has(%s)", x)
	}
	return fmt.Sprintf("has(%s) && %s", x, inside)
}
