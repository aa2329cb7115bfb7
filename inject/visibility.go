// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Expressions see the pod without the containers of templates. Otherwise a template that counts
// containers or loops over them would have a different result for the final pod.
//
// Hidden: a container is hidden if it was added in this run. It is also hidden if the
// pod's annotations say that it belongs to a template (see isMarked), and if it can be the template's container (see
// [fragment.Runs.MayBe]). All other containers are visible.
//
// Exposed: a forged annotation can hide a container of the user's, because MayBe knows no computed values.
// Required templates must not be deceived by that. They also see the hidden containers that are not what a template renders
// for this pod: these are exposed. A template never sees exposed containers with its own
// names: it could copy from them, and then render what the user wrote. A container that only lacks parts of what its template
// renders is not exposed, because the template will add these parts. Otherwise a required template would add to it first, and so
// change what the other template protects.
//
// Unseen: a container with one of a template's own names may be visible because something changed it. If that makes the template's
// condition false although the pod's annotations say that it has the template, the condition is evaluated again without such
// containers. Otherwise no check would notice the change.
//
// Proven: a container that was added in this run, or that a template rendered before anything was added, stays hidden while templates
// add to the pod, unless its template does not apply any more. If no template renders the container at the
// end, a template is left out, see [fixedPointSearch.losingTemplates].

// withoutHidden returns the pod as the expressions of a template see it, and the number of visible
// containers. If t is nil, no exposed container is visible. It shares memory with the pod.
func (s *subject) withoutHidden(t *loaded) (pod *jsontree.Node, containers int) {
	return s.withoutContainers(func(container *jsontree.Node) bool { return s.hidesContainer(container, t) })
}

// shownToCluster returns a pod, as expressions see it, with the containers that the templates of the cluster see: for them, those of
// a namespace's templates are the user's.
func (s *subject) shownToCluster(pod *jsontree.Node) *jsontree.Node {
	shown, _ := s.withoutContainers(func(container *jsontree.Node) bool {
		name := container.Get("name").Text()
		return slices.ContainsFunc(s.templates, func(t *loaded) bool { return t.Namespace == "" && t.Brings(name) && s.isMarked(t) })
	})
	spec := pod.Get("spec")
	for _, list := range schema.ContainerLists() {
		if items := shown.At("spec", list); items != nil {
			spec = s.storeNode(s.nodes.With(spec, list, *items))
		}
	}
	return s.withAppArmors(s.storeNode(s.nodes.With(pod, "spec", *spec)))
}

// withoutContainers returns the pod without some containers, and the number of the others. It shares memory with the pod.
func (s *subject) withoutContainers(omit func(container *jsontree.Node) bool) (pod *jsontree.Node, containers int) {
	spec := s.pod.Get("spec")
	seen := spec
	for _, list := range schema.ContainerLists() {
		items := spec.Get(list).Items()
		hidden := 0
		for i := range items {
			if omit(&items[i]) {
				hidden++
			}
		}
		if containers += len(items) - hidden; hidden == 0 {
			continue
		}
		if hidden == len(items) {
			seen = s.storeNode(s.nodes.Without(seen, list))
			continue
		}
		own := s.nodes.Nodes(len(items) - hidden)
		for i := range items {
			if !omit(&items[i]) {
				own = append(own, items[i])
			}
		}
		seen = s.storeNode(s.nodes.With(seen, list, jsontree.Items(own...)))
	}
	if seen == spec {
		return s.pod, containers
	}
	return s.storeNode(s.nodes.With(s.pod, "spec", *seen)), containers
}

// foreseenPart returns a part of the pod as expressions see it. Additions of earlier rounds have the
// form in which the API server will store them, so a second run sees the same. Gated fields are left
// out if an expression might see them. If none reads the pod, it is returned unchanged.
func (s *subject) foreseenPart(n *jsontree.Node, of *schema.Schema) *jsontree.Node {
	if of.GoType == schema.ContainerType() {
		n = s.withAppArmor(n)
	}
	if !s.readsPod || !s.request.file && (!s.grown || n.AddedSize() == 0) && (!s.readsGated || !of.HasGated(n)) {
		return n
	}
	return new(of.Foreseen(n, schema.Server{File: s.request.file, OnHost: s.onHost, DropsGated: s.readsGated}))
}

// withoutDropped returns the pod's annotations without those that every API server drops. It returns the same node if there
// are none.
func (s *subject) withoutDropped(annotations *jsontree.Node) *jsontree.Node {
	for _, key := range values.DroppedAnnotations() {
		if annotations.Get(key) != nil {
			annotations = s.storeNode(s.nodes.Without(annotations, key))
		}
	}
	return annotations
}

// hidesContainer reports whether the expressions of a template do not see a container of the pod. If t is nil, it is for templates
// that are not required.
func (s *subject) hidesContainer(container *jsontree.Node, t *loaded) bool {
	name := container.Get("name").Text()
	switch {
	case !s.isBrought(name), t != nil && t.Spec.Required && s.exposed[name] && !t.Brings(name):
		return false
	case t != nil && t.Brings(name) && s.unseen[t]:
		return true
	}
	return container.Added() || slices.ContainsFunc(s.markedRuns(), func(c fragment.Runs) bool { return fragment.IsNamed(c.Name, name) && c.MayBe(container) })
}

// showsOwn reports whether a container with one of the template's names is visible, as if it were the user's, although the pod says
// that it has the template.
func (s *subject) showsOwn(t *loaded) bool {
	if !t.ReadsContainers() || !s.isMarked(t) {
		return false
	}
	for _, list := range schema.ContainerLists() {
		items := s.pod.At("spec", list).Items()
		for i := range items {
			if t.Brings(items[i].Get("name").Text()) && !s.hidesContainer(&items[i], nil) {
				return true
			}
		}
	}
	return false
}

// markedRuns returns what the containers of the templates with which the pod is marked run, as far as that is known without a pod. A
// container of the pod that can be one of them is hidden.
func (s *subject) markedRuns() []fragment.Runs {
	if !s.runsKnown {
		s.runsOfMarked, s.runsKnown = s.runsOfMarked[:0], true
		for _, t := range s.templates {
			// The record of a canary is also one of the template that it replaced: if the canary does not apply, the
			// pod gets the other one.
			if len(t.runs) > 0 && (s.isMarked(t) || len(t.canaries) > 0 && s.annotation(t.injected) != nil) {
				s.runsOfMarked = append(s.runsOfMarked, t.runs...)
			}
		}
	}
	return s.runsOfMarked
}

// unprovenNames returns the names of hidden containers that are rendered neither by a candidate nor by a template that is
// left out, and that no candidate will complete.
func (s *subject) unprovenNames(candidates, leftOut []*candidate) (names map[string]bool) {
	for container := range s.hiddenContainers {
		if !s.staysHidden(container, candidates) && !isRendered(container, candidates) && !isRendered(container, leftOut) && !s.isCompleted(container, candidates) {
			if names == nil {
				names = map[string]bool{}
			}
			names[container.Get("name").Text()] = true
		}
	}
	return names
}

// recordProven records that the hidden containers that are not exposed are templates'.
func (s *subject) recordProven() {
	if s.proven == nil {
		s.proven = map[string]bool{}
	}
	for container := range s.hiddenContainers {
		if name := container.Get("name").Text(); !s.exposed[name] {
			s.proven[name] = true
		}
	}
}

// hiddenContainers yields the hidden containers of the pod, including exposed ones.
func (s *subject) hiddenContainers(yield func(*jsontree.Node) bool) {
	for _, list := range schema.ContainerLists() {
		items := s.pod.At("spec", list).Items()
		for i := range items {
			if s.hidesContainer(&items[i], nil) && !yield(&items[i]) {
				return
			}
		}
	}
}

// lostNames yields the names of containers that stayed hidden although no candidate renders them any more.
func (s *subject) lostNames(candidates []*candidate) func(yield func(name string) bool) {
	return func(yield func(string) bool) {
		for container := range s.hiddenContainers {
			name := container.Get("name").Text()
			if s.staysHidden(container, candidates) && !isRendered(container, candidates) && !yield(name) {
				return
			}
		}
	}
}

// staysHidden reports whether a hidden container was added in this run or is proven, and one of the candidates brings its name.
func (s *subject) staysHidden(container *jsontree.Node, candidates []*candidate) bool {
	name := container.Get("name").Text()
	return (container.Added() || s.proven[name]) && slices.ContainsFunc(candidates, func(c *candidate) bool { return c.t.Brings(name) })
}

// isCompleted reports whether a container will be what one of the candidates renders, because that candidate will add what the
// container lacks. Nothing is added to a final pod.
func (s *subject) isCompleted(container *jsontree.Node, candidates []*candidate) bool {
	if s.request.alone {
		return false
	}
	for _, list := range schema.ContainerLists() {
		if s.schema.At("spec").At(list).Find(s.pod.At("spec", list).Items(), container) < 0 {
			continue
		}
		if slices.ContainsFunc(candidates, func(c *candidate) bool { return s.isMarked(c.t) && c.completesContainer(container, list) }) {
			return true
		}
	}
	return false
}

// isRendered reports whether a container is what one of the templates renders. A container of a namespace's template may
// also have what the templates of the cluster add to it.
func isRendered(container *jsontree.Node, candidates []*candidate) bool {
	return slices.ContainsFunc(candidates, func(c *candidate) bool {
		return c.rendersContainer(container) || c.byCluster != nil && c.rendersContainer(container, c.byCluster(c, container)...)
	})
}
