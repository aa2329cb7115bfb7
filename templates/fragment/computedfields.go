// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/cel"
)

// ComputedFields returns the fields of the containers in a pod's part that depend on the pod.
func (p *Node) ComputedFields() []string {
	var all []string
	for _, list := range ContainerLists {
		for _, container := range p.Member("spec").Member(list).Items() {
			for i, field := range container.parts {
				if field.ofPod() && !slices.Contains(all, container.names[i]) {
					all = append(all, container.names[i])
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// ofPod reports whether the part's value depends on the pod.
func (p *Node) ofPod() bool {
	return p.when != nil && p.when.ReadsPod() || p.loop != nil && p.loop.List().ReadsPod() ||
		slices.ContainsFunc(p.pieces, func(piece cel.Piece) bool { return piece.Expression != nil && piece.Expression.ReadsPod() }) ||
		slices.ContainsFunc(p.parts, (*Node).ofPod)
}
