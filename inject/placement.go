// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// index returns where in a list of the pod's containers a new one goes. The template's containers stay
// next to each other, in its order. The first one goes where the template's placement puts it.
func (p *planner) index(items []tree.Node, fragment *tree.Node, list string) int {
	own := p.fragment.At("spec", list).Items()
	self := slices.IndexFunc(own, hasName(fragment.Get("name").Text()))
	last := -1
	for i := range self {
		last = max(last, p.indexOf(items, &own[i]))
	}
	if last >= 0 {
		return last + 1
	}
	first := len(items)
	for i := range own[self+1:] {
		if next := p.indexOf(items, &own[self+1+i]); next >= 0 {
			first = min(first, next)
		}
	}
	if first < len(items) {
		return first
	}
	position := positionIn(p.placed, list, items)
	i := 0
	switch {
	case position.Before != "":
		return slices.IndexFunc(items, hasName(position.Before))
	case position.After != "":
		i = slices.IndexFunc(items, hasName(position.After)) + 1
	case position.End == templates.Last:
		return len(items)
	}
	for i < len(items) && p.owners.earlier(&items[i], p.t, position, list, items) {
		i++
	}
	return i
}

// earlier reports whether a container of the pod was put there by an earlier template with the same
// position in the list.
func (o *owners) earlier(existing *tree.Node, of *loaded, position templates.Position, list string, items []tree.Node) bool {
	for _, c := range o.candidates {
		if c.t == of {
			return false
		}
		if c.claims(existing) {
			ours := existing.Added() || c.subject.marked(c.t) || c.same(existing)
			return ours && positionIn(&c.placed, list, items) == position
		}
	}
	return false
}

// indexOf returns the index of the pod's container with the same name as one of the template, or -1.
func (p *planner) indexOf(items []tree.Node, own *tree.Node) int {
	name := own.Get("name").Text()
	if !p.subject.has(name) {
		return -1
	}
	return slices.IndexFunc(items, hasName(name))
}

// positionIn returns a position in a list, without a container that the list does not have.
func positionIn(placed *templates.Placement, list string, items []tree.Node) templates.Position {
	position := placed.In(list)
	if name := position.After + position.Before; name != "" && !slices.ContainsFunc(items, hasName(name)) {
		return templates.Position{End: position.End}
	}
	return position
}

func hasName(name string) func(tree.Node) bool {
	return func(item tree.Node) bool { return item.Get("name").IsText(name) }
}
