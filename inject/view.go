// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// Expressions see the pod without the containers that templates bring: only so does a template
// that counts the containers, or loops over them, give the same for the pod as it came and for
// the final pod. A container is a template's if it was added just now, or if the pod says so (see
// marked) and it may be the template's container. What runs something else is seen: an annotation
// alone does not hide it from the condition of a required template.

// view returns the pod as expressions see it, and how many containers they see. It shares what
// it can with the pod.
func (s *subject) view() (pod *tree.Node, containers int) {
	spec := s.pod.Get("spec")
	seen := spec
	for _, list := range containerLists() {
		items := spec.Get(list).Items()
		hidden := 0
		for i := range items {
			if s.hides(&items[i]) {
				hidden++
			}
		}
		if containers += len(items) - hidden; hidden == 0 {
			continue
		}
		if hidden == len(items) {
			seen = s.held(s.nodes.Without(seen, list))
			continue
		}
		own := s.nodes.Nodes(len(items) - hidden)
		for i := range items {
			if !s.hides(&items[i]) {
				own = append(own, items[i])
			}
		}
		seen = s.held(s.nodes.With(seen, list, tree.Items(own...)))
	}
	if seen == spec {
		return s.pod, containers
	}
	return s.held(s.nodes.With(s.pod, "spec", *seen)), containers
}

// foreseen returns a part of the pod as expressions see it: with what earlier looks added as an
// API server will store it, so that a second run sees the same.
func (s *subject) foreseen(n *tree.Node, of *schema.Schema) *tree.Node {
	if !s.asked.file && (!s.grown || n.AddedSize() == 0) {
		return n
	}
	return new(of.Foreseen(n, s.asked.file))
}

// held is a node in memory for nodes.
func (s *subject) held(n tree.Node) *tree.Node { return &append(s.nodes.Nodes(1), n)[0] }

// hides reports whether expressions do not see a container of the pod.
func (s *subject) hides(container *tree.Node) bool {
	name := container.Get("name").Text()
	if s.brings[name] == 0 {
		return false
	}
	return container.Added() || slices.ContainsFunc(s.ofTemplates(), func(c templates.Runs) bool { return c.Name == name && c.MayBe(container) })
}

// ofTemplates are the containers that are a template's if the pod has them.
func (s *subject) ofTemplates() []templates.Runs {
	if !s.oursKnown {
		s.ours, s.oursKnown = s.ours[:0], true
		for _, t := range s.templates {
			if len(t.runs) > 0 && s.marked(t) {
				s.ours = append(s.ours, t.runs...)
			}
		}
	}
	return s.ours
}
