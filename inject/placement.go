// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// insertIndex returns the index at which a new container of the template is inserted into a list of the pod's containers. The
// template's containers stay next to each other, in the template's order. The placement decides only about the first of them.
func (p *planner) insertIndex(items []jsontree.Node, fragment *jsontree.Node, list string) int {
	last, first := -1, len(items)
	for i := range items {
		switch before, after := p.relativeOrder(&items[i], fragment, list); {
		case before:
			last = i
		case after:
			first = min(first, i)
		}
	}
	switch {
	case last >= 0:
		return last + 1
	case first < len(items):
		return first
	}
	i := p.placedAt(items, list)
	if p.t.Namespace != "" {
		return p.besideCluster(items, fragment, list, i)
	}
	return i
}

// placedAt returns the index at which the template's placement puts its first container.
func (p *planner) placedAt(items []jsontree.Node, list string) int {
	position := positionIn(p.placed, list, items)
	i := 0
	switch {
	case position.Before != "":
		return slices.IndexFunc(items, hasName(position.Before))
	case position.After != "":
		i = slices.IndexFunc(items, hasName(position.After)) + 1
	case position.End == v1alpha1.Last:
		return len(items)
	}
	for i < len(items) {
		if by := p.owners.earlierBringer(&items[i], p.t); by == nil || positionIn(&by.placed, list, items) != position {
			break
		}
		i++
	}
	return i
}

// besideCluster corrects the index i at which a container of a namespace's template would be inserted. The result is the order that
// the templates of the cluster would have made if the container had been in the pod before they added theirs. For example, what they
// put first stays first.
func (p *planner) besideCluster(items []jsontree.Node, own *jsontree.Node, list string, i int) int {
	name := own.Get("name").Text()
	placed := func(k int) (position v1alpha1.Position, ofCluster bool) {
		if k < 0 || k >= len(items) {
			return position, false
		}
		by := p.owners.earlierBringer(&items[k], p.t)
		if by == nil || by.t.Namespace != "" {
			return position, false
		}
		for _, position = range fragment.PositionsIn(&by.placed, list) {
			if beside := position.Container(); beside == "" || beside == name || p.wasBefore(by, items, beside) {
				break
			}
		}
		return position, true
	}
	for k := range items {
		switch position, _ := placed(k); name {
		case "":
		case position.Before:
			i = k + 1
		case position.After:
			i = k
		}
	}
	comesFirst := func(position v1alpha1.Position) bool {
		return position.After != "" && position.After != name || position.Before == name || position.Before == "" && position.After == "" && position.End != v1alpha1.Last
	}
	for position, ofCluster := placed(i); ofCluster && comesFirst(position); position, ofCluster = placed(i) {
		i++
	}
	for position, ofCluster := placed(i - 1); ofCluster && !comesFirst(position); position, ofCluster = placed(i - 1) {
		i--
	}
	return i
}

// wasBefore reports whether the pod had a container already when the template by added its own containers.
func (p *planner) wasBefore(by *candidate, items []jsontree.Node, container string) bool {
	i := slices.IndexFunc(items, hasName(container))
	if i < 0 || !items[i].IsNew() {
		return i >= 0
	}
	other := p.owners.earlierBringer(&items[i], p.t)
	return other == nil || other.t.index <= by.t.index
}

// earlierBringer returns the template before of, in the order of application, that brought a container to the pod, or nil.
func (o *owners) earlierBringer(existing *jsontree.Node, of *loaded) *candidate {
	if existing.IsNew() {
		for i := range o.contributed {
			if c := &o.contributed[i]; c.t.index < of.index && c.ownContainer(existing) != nil {
				return c
			}
		}
	}
	name := existing.Get("name").Text()
	for _, c := range o.candidates {
		if c.t == of {
			return nil
		}
		if c.claimsName(name, existing) {
			if existing.Added() || c.subject.isMarked(c.t) || c.matchesOwn(existing) {
				return c
			}
			return nil
		}
	}
	return nil
}

// relativeOrder reports whether a container of the pod belongs before or after the container own of the template. Both results are
// false if the first container is not the template's. A container that an earlier run added is the template's even if the condition
// under which it was added is false now.
func (p *planner) relativeOrder(existing, own *jsontree.Node, list string) (before, after bool) {
	name := existing.Get("name").Text()
	there := p.rankOf(list, name)
	if there < 0 {
		return false, false
	}
	self, i := p.rankOf(list, own.Get("name").Text()), p.renderedIndex(list, name)
	switch {
	case i < 0 && !existing.Added() && !p.subject.isMarked(p.t):
		return false, false // the user's own
	case i >= 0 && there == self: // of one ${forEach}
		before = i < p.renderedIndex(list, own.Get("name").Text())
	default:
		before = there <= self
	}
	return before, !before
}

// rankOf is [templates.Template.Rank]. It keeps the results for a template with many containers, because the planner needs the rank
// for each pair of them.
func (p *planner) rankOf(list, name string) int {
	if len(p.fragment.At("spec", list).Items()) < longList {
		return p.t.Rank(list, name)
	}
	key := [2]string{list, name}
	rank, ok := p.ranks[key]
	if !ok {
		if rank = p.t.Rank(list, name); p.ranks == nil {
			p.ranks = map[[2]string]int{}
		}
		p.ranks[key] = rank
	}
	return rank
}

// renderedIndex returns the index of a container among those that the template renders, or -1. It indexes a long list, because a
// template may render a thousand containers.
func (p *planner) renderedIndex(list, name string) int {
	items := p.fragment.At("spec", list).Items()
	if len(items) < longList {
		return slices.IndexFunc(items, hasName(name))
	}
	if p.indices[list] == nil {
		index := map[string]int{}
		for i := range items {
			index[items[i].Get("name").Text()] = i
		}
		if p.indices == nil {
			p.indices = map[string]map[string]int{}
		}
		p.indices[list] = index
	}
	if i, ok := p.indices[list][name]; ok {
		return i
	}
	return -1
}

// positionIn returns the first position in a list whose container the list has. The last one has none.
func positionIn(placed *v1alpha1.Placement, list string, items []jsontree.Node) (position v1alpha1.Position) {
	for _, position = range fragment.PositionsIn(placed, list) {
		if name := position.Container(); name == "" || slices.ContainsFunc(items, hasName(name)) {
			break
		}
	}
	return position
}

func hasName(name string) func(jsontree.Node) bool {
	return func(item jsontree.Node) bool { return item.Get("name").IsText(name) }
}
