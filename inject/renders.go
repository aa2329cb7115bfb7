// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// renders reports whether a container is what the template renders. It ignores what Kubernetes itself
// sets, and what other webhooks commonly add to all containers: variables, mounts, ports, resources, and
// fewer rights. Another webhook may run after Pillion, and the pod must stay valid.
func (c *candidate) renders(existing *tree.Node) bool {
	own := c.own(existing)
	if own == nil {
		return false
	}
	container := comparison{subject: c.subject, at: c.subject.beside, f: c.subject.schema.At("spec").At("containers").Elem.AsField(), stored: true}
	equal := func(m tree.Node) bool {
		name := m.Name()
		there, ours := existing.Get(name), own.Get(name)
		switch name {
		case "env", "volumeMounts", "resources":
			return true
		case "securityContext":
			there = c.subject.withoutHardening(there, ours)
		}
		member := container.member(name)
		member.open = templates.IsOpenList(name)
		return member.find(there, ours) == nil
	}
	return allOf(own.Members(), equal) && allOf(existing.Members(), equal)
}

func allOf(members []tree.Node, is func(tree.Node) bool) bool {
	return !slices.ContainsFunc(members, func(m tree.Node) bool { return !is(m) })
}

// withoutHardening returns a security context without fields that the template lacks and that only
// reduce what the container may do.
func (s *subject) withoutHardening(there, ours *tree.Node) *tree.Node {
	rest := there
	members := there.Members()
	for i := range members {
		if m := &members[i]; ours.Get(m.Name()) == nil && hardens(m) {
			rest = s.held(s.nodes.Without(rest, m.Name()))
		}
	}
	if len(rest.Members()) == 0 && ours == nil {
		return nil
	}
	return rest
}

// hardens reports whether a field of a security context only reduces what the container may do.
func hardens(m *tree.Node) bool {
	only := func(name string) bool { return len(m.Members()) == 1 && m.Get(name) != nil }
	switch m.Name() {
	case "readOnlyRootFilesystem", "runAsNonRoot":
		return m.Kind() == tree.True
	case "allowPrivilegeEscalation", "privileged":
		return m.Kind() == tree.False
	case "runAsUser", "runAsGroup":
		return m.Kind() == tree.Number && m.String() != "0"
	case "capabilities":
		return only("drop")
	case "seccompProfile":
		return only("type") && m.Get("type").IsText("RuntimeDefault")
	case "seLinuxOptions":
		return only("level")
	}
	return false
}
