// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/cel"
)

// computedFields returns the fields of the containers in a pod's part that depend on the pod.
func (p *part) computedFields() []string {
	var all []string
	for _, list := range containerLists {
		for _, container := range p.findMember("spec").findMember(list).items() {
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
func (p *part) ofPod() bool {
	return p.when != nil && p.when.ReadsPod() || p.loop != nil && p.loop.List().ReadsPod() ||
		slices.ContainsFunc(p.pieces, func(piece cel.Piece) bool { return piece.Expression != nil && piece.Expression.ReadsPod() }) ||
		slices.ContainsFunc(p.parts, (*part).ofPod)
}
