// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"
)

// computedFields returns the fields of the containers in a pod's part that depend on the pod.
func (p *part) computedFields() []string {
	var all []string
	for _, list := range []string{"initContainers", "containers"} {
		containers := p.child("spec").child(list)
		if containers == nil {
			continue
		}
		for _, container := range containers.parts {
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

// child returns the part with that name. It returns nil if there is none, or none with expressions.
func (p *part) child(name string) *part {
	if p == nil {
		return nil
	}
	if i := slices.Index(p.names, name); i >= 0 {
		return p.parts[i]
	}
	return nil
}

// ofPod reports whether the part's value depends on the pod.
func (p *part) ofPod() bool {
	return p.when != nil && p.when.ofPod ||
		slices.ContainsFunc(p.pieces, func(piece piece) bool { return piece.program != nil && piece.program.ofPod }) ||
		slices.ContainsFunc(p.parts, (*part).ofPod)
}
