// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Expressions see the pod without the containers that templates bring: only so does a template
// that counts the containers, or loops over them, give the same for the pod as it came and for
// the final pod. A container is a template's if it was added just now, or if it has the name of
// one of the template's containers and the pod says that it is the template's, see marked.

// view returns the pod as expressions see it, and how many containers they see. It shares what
// it can with the pod.
func (r *run) view() (pod *tree.Node, containers int) {
	if !r.readsContainers {
		return r.pod, 0
	}
	spec := r.pod.Get("spec")
	seen := spec
	for _, list := range containerLists() {
		items := spec.Get(list).Items()
		hidden := 0
		for i := range items {
			if r.hides(&items[i]) {
				hidden++
			}
		}
		if containers += len(items) - hidden; hidden == 0 {
			continue
		}
		if hidden == len(items) {
			seen = r.held(r.nodes().Without(seen, list))
			continue
		}
		own := r.nodes().Nodes(len(items) - hidden)
		for i := range items {
			if !r.hides(&items[i]) {
				own = append(own, items[i])
			}
		}
		seen = r.held(r.nodes().With(seen, list, tree.Items(own...)))
	}
	if seen == spec {
		return r.pod, containers
	}
	return r.held(r.nodes().With(r.pod, "spec", *seen)), containers
}

// held is a node in memory for nodes.
func (r *run) held(n tree.Node) *tree.Node { return &append(r.nodes().Nodes(1), n)[0] }

// hides reports whether expressions do not see a container of the pod.
func (r *run) hides(container *tree.Node) bool {
	name := container.Get("name").Text()
	return r.brings[name] > 0 && (container.Added() || slices.Contains(r.ofTemplates(), name))
}

// ofTemplates are the names of the containers that are a template's if the pod has them.
func (r *run) ofTemplates() []string {
	if !r.oursKnown {
		r.ours, r.oursKnown = r.ours[:0], true
		for _, t := range r.templates {
			if len(t.Containers) > 0 && r.marked(t) {
				r.ours = append(r.ours, t.Containers...)
			}
		}
	}
	return r.ours
}
