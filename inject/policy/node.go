// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// node is a piece of a fragment: an object, a list, or a value.
type node struct {
	field     *schema.Field // what the engine knows about the field
	object    bool
	list      bool
	names     []string // of an object's members
	children  []node
	text      string    // a value, in CEL
	constant  bool      // the value is the same for every pod
	zero      bool      // the API server treats the value as absent
	container bool      // it depends on the app container
	typ       *cel.Type // of a value that is not constant
	when      string    // the condition of a list's item or a map's entry; "" is always
	whenApp   bool      // that depends on the app container
	path      string    // in the template; "" if the template does not have it
	apiField  string    // for example Container.image, if the value is not constant
	rules     []string  // conditions for such a value
	ruled     bool      // it has rules that no condition expresses
}

// get returns an object's member, or nil.
func (n *node) get(names ...string) *node {
	for _, name := range names {
		i := -1
		if n != nil {
			i = slices.Index(n.names, name)
		}
		if i < 0 {
			return nil
		}
		n = &n.children[i]
	}
	return n
}

// items returns a list's items.
func (n *node) items() []node {
	if n == nil || !n.list {
		return nil
	}
	return n.children
}

// members returns the values of an object's members.
func (n *node) members() []node {
	if n == nil || !n.object {
		return nil
	}
	return n.children
}

// childField returns the field of an object's member, or of a list's items.
func (n *node) childField(name string) *schema.Field {
	if n.list {
		return &schema.Field{Schema: n.field.Elem}
	}
	return n.field.At(name)
}

// appendChild appends a member to an object, or an item to a list, and returns it.
func (n *node) appendChild(name string, child node) *node {
	child.field = n.childField(name)
	n.names, n.children = append(n.names, name), append(n.children, child)
	return &n.children[len(n.children)-1]
}

// ensureChild returns the member with that name. If there is none, it adds child.
func (n *node) ensureChild(name string, child node) *node {
	if there := n.get(name); there != nil {
		return there
	}
	return n.appendChild(name, child)
}

// constantString returns the string of a constant.
func (n *node) constantString() string {
	if n == nil || !n.constant {
		return ""
	}
	return strings.Trim(n.text, `"`) // names, images and policies contain nothing to escape
}

func joinPath(path, name string) string {
	if strings.ContainsAny(name, "./[]") {
		return fmt.Sprintf("%s[%q]", path, name)
	}
	return path + "." + name
}

// podSchema is the schema of the engine.
var podSchema = sync.OnceValue(schema.Pod)

// podFragment returns what the template adds to a pod.
func (b *builder) podFragment() node {
	pod := b.fragmentNode(b.t.PodFragment(), &schema.Field{Schema: podSchema()}, "spec.pod")
	for _, list := range containerLists() {
		for _, c := range pod.get("spec", list).items() {
			if name := c.get("name"); name != nil && !name.constant {
				b.addProblem(name.path, "a policy cannot recognize a container whose name is computed")
			}
		}
	}
	return pod
}

// fragmentNode returns a node for a compiled fragment.
func (b *builder) fragmentNode(f fragment.View, field *schema.Field, path string) node {
	n := node{field: field, path: path, object: f.IsObject(), list: f.IsList(), constant: f.Static() != nil, ruled: f.Ruled()}
	if w := f.When(); w != nil {
		r := b.rewriteAt(path+".${when}", w)
		n.when, n.whenApp, n.container = r.text, r.container, r.container
	}
	i := -1
	for name, child := range f.Children() {
		sub := joinPath(path, name)
		if i++; n.list {
			sub = fmt.Sprintf("%s[%d]", path, i)
		}
		if name == fragment.IfSetKey {
			b.addProblem(sub, "a policy always keeps a variable that a container has, and cannot do anything else")
			continue
		}
		if child.Loop() != nil {
			b.addProblem(sub+".${forEach}", "a policy cannot make several items of one")
			continue
		}
		if child.IsSpread() {
			b.addProblem(sub, "a policy cannot insert the items of a list between others; make the whole list one expression")
			continue
		}
		if child.MayLack() && (!n.list || child.When() == nil) {
			b.addProblem(sub, "it is left out for some pods; a policy can leave out only whole items of lists, by ${when}")
		}
		n.container = n.appendChild(name, b.fragmentNode(child, n.childField(name), sub)).container || n.container
	}
	switch {
	case n.object, n.list:
		n.zero = len(n.children) == 0
	case n.constant:
		if n.text = f.Static().String(); f.Static().Kind() == jsontree.String {
			n.text = quoteString(f.Static().Text())
		}
		n.zero = slices.Contains([]string{`""`, "false", "0"}, n.text)
	default:
		conditions, complete := f.Rules()
		n.apiField, n.rules, n.ruled = f.Field(), conditions, !complete
		b.setExpressions(&n, f)
	}
	return n
}

// setExpressions sets n to a value with expressions.
func (b *builder) setExpressions(n *node, f fragment.View) {
	pieces, whole := f.Pieces()
	var texts []string
	if f.Whole() {
		b.addProblem(n.path, "it computes a whole object or a list of objects; a policy can compute only single values")
	}
	for _, p := range pieces {
		if p.Expression == nil {
			texts = append(texts, quoteString(p.Literal))
			continue
		}
		r := b.rewriteAt(n.path, p.Expression)
		n.container = n.container || r.container
		if whole {
			n.text, n.typ = r.text, r.typ
			return
		}
		texts = append(texts, "string("+r.text+")")
	}
	n.text, n.typ = strings.Join(texts, " + "), types.StringType
}

// isMap reports whether a place is an object with free keys.
func isMap(s *schema.Field) bool { return s.GoType.Kind() == reflect.Map }

// celValue returns the node in CEL. If that is a struct, name is the name of its type, for example
// Object.spec.volumes.
func (n *node) celValue(name string) string {
	switch {
	case n.list:
		return "[" + strings.Join(n.eachChild(func(_ string, c *node) string { return c.celItem("", name) }), ", ") + "]"
	case n.object && isMap(n.field):
		return "{" + strings.Join(n.eachChild(func(member string, c *node) string { return c.celItem(quoteString(member)+": ", name) }), ", ") + "}"
	case n.object:
		return name + "{" + strings.Join(n.eachChild(func(member string, c *node) string { return member + ": " + c.celValue(name+"."+member) }), ", ") + "}"
	case !n.field.Quantity || n.constant && strings.HasPrefix(n.text, `"`):
		return n.text
	case n.constant: // a quantity is always a string, so that a map of quantities has one type
		return quoteString(n.text)
	}
	return "string(" + n.text + ")"
}

// celItem returns an item of a list or an entry of a map, which may have a condition. A value that is
// read from a pod has no type, but all items must have the same type. It is therefore converted to
// its type in the template.
func (n *node) celItem(key, name string) string {
	value := n.celValue(name)
	if n.typ != nil && !n.field.Quantity && slices.Contains(scalarTypes(), n.typ.TypeName()) {
		value = n.typ.TypeName() + "(" + value + ")"
	}
	if n.when != "" {
		return "?" + key + optionalValue(n.when, value)
	}
	return key + value
}

func (n *node) eachChild(f func(name string, child *node) string) []string {
	var all []string
	for i := range n.children {
		all = append(all, f(n.names[i], &n.children[i]))
	}
	return all
}

// whenPresent returns a condition that must be true if the item exists.
func (n *node) whenPresent(condition string) string {
	if n.when == "" {
		return condition
	}
	return fmt.Sprintf("!(%s) || (%s)", n.when, condition)
}

// whenMaybePresent is like unless, but outside of app containers. There, items that depend on the app
// container count as if they existed.
func (n *node) whenMaybePresent(condition string) string {
	if n.whenApp {
		return condition
	}
	return n.whenPresent(condition)
}

// containsNode returns a condition in CEL: x has everything that the node has, with the same values,
// as in the engine's [schema.Schema.Contains]. Other fields of x, such as defaults, do not matter.
func (b *builder) containsNode(n *node, x string) string {
	switch {
	case n.list:
		checks := []string{fmt.Sprintf("size(%s) == %d", x, len(n.children))}
		for i := range n.children {
			if n.children[i].when != "" {
				b.addProblem(n.children[i].path, "a policy cannot compare a list that has a ${when} with the list of the pod")
			}
			checks = append(checks, b.containsNode(&n.children[i], fmt.Sprintf("%s[%d]", x, i)))
		}
		return allTrue(checks...)
	case n.object && isMap(n.field):
		return allTrue(n.eachChild(func(name string, c *node) string {
			return fmt.Sprintf("%q in %s && %s", name, x, b.containsNode(c, fmt.Sprintf("%s[%q]", x, name)))
		})...)
	case n.object:
		return allTrue(n.eachChild(func(name string, c *node) string {
			there, inside := "has("+x+"."+name+")", b.containsNode(c, x+"."+name)
			if c.field.AbsentIsZero && c.zero {
				return fmt.Sprintf("(!%s || %s)", there, inside)
			}
			return allTrue(there, inside)
		})...)
	case n.field.Quantity:
		return fmt.Sprintf("quantity(%s).compareTo(quantity(%s)) == 0", x, n.celValue(""))
	}
	return fmt.Sprintf("%s == %s", x, n.text)
}
