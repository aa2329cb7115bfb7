// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/fragment"
)

// A template recognizes the containers that its ${forEach} makes by the constant part of their names.
// If the list becomes shorter, for example because an annotation changed, the containers that were made
// before stay in the pod and still belong to the template.

// checkForeign reports a conflict for each container that has a name of the form of the template's generated names, but that the
// template did not make.
func (p *planner) checkForeign() {
	if p.wasMarked {
		return
	}
	for _, own := range p.t.Containers {
		if !fragment.IsGenerated(own) {
			continue
		}
		for _, list := range schema.ContainerLists() {
			items := p.subject.pod.At("spec", list).Items()
			for i := range items {
				name := items[i].Get("name").Text()
				if !fragment.IsNamed(own, name) || p.subject.sameName(p.fragment, &items[i]) != nil {
					continue
				}
				at := p.subject.beside.Member("spec").Member(list).Item(items, i)
				if other := p.findContributor(func(c *candidate) bool { return c.t.Brings(name) }); other != "" {
					p.reportConflict(at, &items[i], nil, "the template %s adds a container named %s, and names of the form %s are this template's; rename it in one of the templates", other, name, own)
				} else {
					p.reportConflict(at, &items[i], nil, "the pod has its own container named %s, but names of the form %s are the template's; rename the container in the pod", name, own)
				}
			}
		}
	}
}
