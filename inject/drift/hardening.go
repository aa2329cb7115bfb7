// SPDX-License-Identifier: Apache-2.0

package drift

import "github.com/pillion-dev/pillion/templates/jsontree"

// withoutHardening returns there, the pod's security context of a container, without fields that another webhook may have added: ours,
// that of the template, lacks them, and the function hardens is true for them. It returns nil if nothing is left and ours is nil.
func withoutHardening(nodes *jsontree.Arena, there, ours *jsontree.Node, hardens func(*jsontree.Node) bool) *jsontree.Node {
	rest := there
	members := there.Members()
	for i := range members {
		if m := &members[i]; ours.Get(m.Name()) == nil && hardens(m) {
			rest = &append(nodes.Nodes(1), nodes.Without(rest, m.Name()))[0]
		}
	}
	if len(rest.Members()) == 0 && ours == nil {
		return nil
	}
	return rest
}

// hardensContainer reports whether a field of a security context only reduces what the container may do.
func hardensContainer(m *jsontree.Node) bool {
	only := func(name string) bool { return len(m.Members()) == 1 && m.Get(name) != nil }
	switch m.Name() {
	case "readOnlyRootFilesystem", "runAsNonRoot":
		return m.Kind() == jsontree.True
	case "allowPrivilegeEscalation", "privileged":
		return m.Kind() == jsontree.False
	case "runAsUser", "runAsGroup":
		return m.Kind() == jsontree.Number && m.String() != "0"
	case "capabilities":
		return only("drop")
	case "seccompProfile":
		return only("type") && m.Get("type").IsText("RuntimeDefault")
	case "seLinuxOptions":
		return only("level")
	}
	return false
}

// hardensSameUser is hardensContainer without the fields that decide as which user the container runs.
func hardensSameUser(m *jsontree.Node) bool {
	switch m.Name() {
	case "runAsUser", "runAsGroup", "seLinuxOptions":
		return false
	}
	return hardensContainer(m)
}
