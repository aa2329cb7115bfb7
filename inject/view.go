// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// Expressions see the pod without the containers of templates. Otherwise a template that counts
// containers or loops over them would have a different result for the final pod.
//
// A container belongs to a template if it was just added. It also belongs to a template if the
// pod's annotations say so (see marked) and if it can be the template's container (see
// [templates.Runs.MayBe]). All other containers are visible.
//
// An annotation can still hide a container of the user's, because MayBe knows no computed values.
// Required templates therefore see more: also the containers that are not what a template now
// renders for this pod. Such containers are exposed.

// view returns the pod as expressions see it, and the number of visible containers. Exposed
// containers are visible if exposed is true. It shares memory with the pod.
func (s *subject) view(exposed bool) (pod *tree.Node, containers int) {
	spec := s.pod.Get("spec")
	seen := spec
	for _, list := range containerLists() {
		items := spec.Get(list).Items()
		hidden := 0
		for i := range items {
			if s.hides(&items[i], exposed) {
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
			if !s.hides(&items[i], exposed) {
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

// foreseen returns a part of the pod as expressions see it. Additions of earlier looks have the
// form in which the API server will store them, so a second run sees the same.
func (s *subject) foreseen(n *tree.Node, of *schema.Schema) *tree.Node {
	if !s.asked.file && (!s.grown || n.AddedSize() == 0) {
		return n
	}
	return new(of.Foreseen(n, schema.Server{File: s.asked.file, OnHost: s.onHost}))
}

// held copies a node into the arena and returns its address.
func (s *subject) held(n tree.Node) *tree.Node { return &append(s.nodes.Nodes(1), n)[0] }

// hides reports whether a container of the pod is invisible to expressions.
func (s *subject) hides(container *tree.Node, exposed bool) bool {
	name := container.Get("name").Text()
	if !s.isBrought(name) || exposed && s.exposed[name] {
		return false
	}
	return container.Added() || slices.ContainsFunc(s.ofTemplates(), func(c templates.Runs) bool { return templates.IsNamed(c.Name, name) && c.MayBe(container) })
}

// ofTemplates returns the containers that belong to a template if the pod has them.
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

// expose finds the hidden containers that no candidate renders, and reports whether there are any. A
// container that an earlier look added needs this proof, too: the next run does not know who added it.
func (s *subject) expose(candidates []*candidate) bool {
	s.exposed = nil
	for _, list := range containerLists() {
		items := s.pod.At("spec", list).Items()
		for i := range items {
			if !s.hides(&items[i], false) || slices.ContainsFunc(candidates, func(c *candidate) bool { return c.renders(&items[i]) }) {
				continue
			}
			if s.exposed == nil {
				s.exposed = map[string]bool{}
			}
			s.exposed[items[i].Get("name").Text()] = true
		}
	}
	return len(s.exposed) > 0
}
