// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// rendersContainer reports whether a container is what the template renders. It ignores what Kubernetes itself
// sets, and what other webhooks commonly add to all containers: variables, mounts, ports, resources, and
// fewer rights. Another webhook may run after Pillion, and the pod must stay valid. It also ignores besides, which are what
// other templates add to the container.
func (c *candidate) rendersContainer(existing *jsontree.Node, besides ...*jsontree.Node) bool {
	own := c.ownContainer(existing)
	if own == nil {
		return false
	}
	existing = c.subject.withAppArmor(existing)
	container := comparison{subject: c.subject, at: c.subject.beside, f: c.subject.schema.At("spec").At("containers").Elem.AsField(), stored: true, besides: besides}
	equal := func(m jsontree.Node) bool {
		name := m.Name()
		switch name {
		case "env", "volumeMounts", "resources":
			return true
		}
		return container.findBesideOthers(name, existing, own, hardensContainer) == nil
	}
	return allOf(own.Members(), equal) && allOf(existing.Members(), equal)
}

func allOf(members []jsontree.Node, is func(jsontree.Node) bool) bool {
	return !slices.ContainsFunc(members, func(m jsontree.Node) bool { return !is(m) })
}
