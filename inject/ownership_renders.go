// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/inject/drift"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// rendersContainer reports whether a container is what the template renders. It ignores what Kubernetes itself
// sets, what other templates add to the container (besides), and what other webhooks commonly add to all containers: variables,
// mounts, ports, resources, and restrictions of rights. Such a webhook may run after Pillion, and the validating webhook must still
// recognize the container.
func (c *candidate) rendersContainer(existing *jsontree.Node, besides ...*jsontree.Node) bool {
	return c.equalsOwn(existing, drift.Comparison{Besides: besides})
}

// completesContainer reports whether a container of a list will be what the template renders after the template has added what the
// container lacks.
func (c *candidate) completesContainer(existing *jsontree.Node, list string) bool {
	return c.subject.schema.At("spec").At(list).Find(c.fragment.At("spec", list).Items(), existing) >= 0 && c.equalsOwn(existing, drift.Comparison{Unfinished: true})
}

// equalsOwn compares a container with the template's container of that name.
func (c *candidate) equalsOwn(existing *jsontree.Node, container drift.Comparison) bool {
	own := c.ownContainer(existing)
	if own == nil {
		return false
	}
	existing = c.subject.withAppArmor(existing)
	container.Pod, container.At, container.Stored = &c.subject.compared, c.subject.beside, true
	container.Field = c.subject.schema.At("spec").At("containers").Elem.AsField()
	equal := func(m jsontree.Node) bool {
		name := m.Name()
		switch name {
		case "env", "volumeMounts", "resources":
			return true
		}
		return container.FindBesideOthers(name, existing, own) == nil
	}
	return allOf(own.Members(), equal) && allOf(existing.Members(), equal)
}

func allOf(members []jsontree.Node, is func(jsontree.Node) bool) bool {
	return !slices.ContainsFunc(members, func(m jsontree.Node) bool { return !is(m) })
}
