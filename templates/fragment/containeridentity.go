// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Runs is the part of what a template's container runs that is known without a pod.
type Runs struct {
	Name   string           // with * for its computed part
	fields map[string]*Node // image, command and args
}

// RunsOf returns the Runs of each container of a partial Pod.
func RunsOf(pod *Node) (all []Runs) {
	for _, list := range ContainerLists {
		for _, container := range pod.Member("spec").Member(list).Items() {
			r := Runs{fields: map[string]*Node{}}
			r.Name = container.Member("name").namePattern()
			for _, field := range []string{"image", "command", "args"} {
				r.fields[field] = container.Member(field)
			}
			all = append(all, r)
		}
	}
	return all
}

// MayBe reports whether a container of a pod can be this one. It returns false if the container is
// known to run something that the template's container does not. Fields that the container lacks do
// not matter, because Pillion may add them.
func (r Runs) MayBe(container *jsontree.Node) bool {
	for field, p := range r.fields {
		if there := container.Get(field); there != nil && !p.mayBe(there) {
			return false
		}
	}
	return true
}

// Condition returns MayBe as a CEL condition for a container x, for policies.
func (r Runs) Condition() string {
	conditions := []string{"x.name == " + strconv.Quote(r.Name)}
	if prefix, suffix, generated := strings.Cut(r.Name, "*"); generated {
		conditions[0] = fmt.Sprintf("x.name.startsWith(%q) && x.name.endsWith(%q)", prefix, suffix)
	}
	for _, field := range []string{"image", "command", "args"} {
		switch p := r.fields[field]; {
		case p == nil:
			conditions = append(conditions, "!has(x."+field+")")
		case p.kind == staticPart:
			conditions = append(conditions, fmt.Sprintf("x.?%s.orValue(%s) == %[2]s", field, &p.static))
		case len(p.pieces) > 0:
			first, last := p.pieces[0].Literal, p.pieces[len(p.pieces)-1].Literal
			conditions = append(conditions, fmt.Sprintf("x.?%s.orValue(%q).startsWith(%q) && x.?%[1]s.orValue(%[2]q).endsWith(%[4]q)", field, first+last, first, last))
		}
	}
	return strings.Join(conditions, " && ")
}

// mayBe reports whether rendering p can result in a certain string or list of strings.
func (p *Node) mayBe(n *jsontree.Node) bool {
	switch {
	case p == nil:
		return false
	case p.kind == staticPart:
		return sameStrings(&p.static, n)
	case len(p.pieces) == 0:
		return true
	}
	text := n.Text()
	first, last := p.pieces[0], p.pieces[len(p.pieces)-1]
	return (first.Expression != nil || strings.HasPrefix(text, first.Literal)) && (last.Expression != nil || strings.HasSuffix(text, last.Literal))
}

func sameStrings(a, b *jsontree.Node) bool {
	if a.Kind() != b.Kind() || a.Kind() == jsontree.String && !a.SameText(b) {
		return false
	}
	return slices.EqualFunc(a.Items(), b.Items(), func(a, b jsontree.Node) bool { return sameStrings(&a, &b) })
}
