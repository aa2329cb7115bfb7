// SPDX-License-Identifier: Apache-2.0

package fragment

import "github.com/pillion-dev/pillion/templates/v1alpha1"

// PositionsIn returns the positions in the list initContainers or containers.
func PositionsIn(p *v1alpha1.Placement, list string) v1alpha1.Positions {
	if list == ContainerLists[0] {
		return p.InitContainers
	}
	return p.Containers
}

// ContainerLists are the lists of containers that a template adds to.
var ContainerLists = [...]string{"initContainers", "containers"}
