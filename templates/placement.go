// SPDX-License-Identifier: Apache-2.0

package templates

// PositionIn returns the position in the list initContainers or containers.
func PositionIn(p *Placement, list string) Position {
	if list == containerLists[0] {
		return p.InitContainers
	}
	return p.Containers
}

// containerLists are the lists of containers that a template adds to.
var containerLists = [...]string{"initContainers", "containers"}
