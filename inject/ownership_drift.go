// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/inject/drift"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Another webhook may change an unprotected field of a sidecar between two calls. Required templates
// then take the sidecar for a container of the user's, and add to it. What they add is no alteration, even in
// protected fields.

// alteredBeside is alteredIn for a container of the candidate c. It excuses what other templates add to the
// container.
func (o *owners) alteredBeside(c *candidate, list string, found int, own *jsontree.Node) []Difference {
	s := o.subject
	items := s.pod.At("spec", list).Items()
	others := o.additionsByOthers(c, list, &items[found], own)
	return s.alteredIn(c.t, &items[found], own, s.beside.Member("spec").Member(list).Item(items, found), others...)
}

// additionsByOthers returns what other templates add to a container of the candidate c in the pod. Required templates
// add to it only if an unprotected field differs from c's template: then the container counts as the user's for them. Templates of
// the cluster always add to the containers of a namespace's template. All of them see the container with the template's values in
// protected fields, because it had these values when they added to it.
func (o *owners) additionsByOthers(c *candidate, list string, existing, own *jsontree.Node) (all []*jsontree.Node) {
	tenants := c.t.Namespace != ""
	if !tenants && o.belongsToTemplate(existing, true) {
		return nil
	}
	restored := c.restoreProtected(existing, own)
	if !tenants && c.rendersContainer(restored) {
		return nil
	}
	for _, other := range o.candidates {
		if other != c && other.t.Spec.Required && (!tenants || other.t.Namespace != "") {
			all = append(all, o.addedBy(other, list, restored)...)
		}
	}
	if tenants {
		all = append(all, o.addedByCluster(list, restored)...)
	}
	return all
}

// addedByCluster returns what the templates of the cluster add to a container of a namespace's template: those that apply, and those
// that the pod records and that apply only because of the containers of such templates, which they see in the pod.
func (o *owners) addedByCluster(list string, container *jsontree.Node) (all []*jsontree.Node) {
	for _, other := range o.candidates {
		if other.t.Namespace == "" {
			all = append(all, o.addedBy(other, list, container)...)
		}
	}
	for _, t := range o.flipped {
		if t.Namespace == "" && t.HasForEach() && o.subject.isRecorded(t) {
			if other := o.renderForCluster(t); other != nil {
				all = append(all, o.addedBy(other, list, container)...)
			}
		}
	}
	return all
}

// renderForCluster renders a template of the cluster for the pod with the containers of the namespace's templates, or returns nil if
// that pod would not get it. It renders each template once in a round.
func (o *owners) renderForCluster(t *loaded) *candidate {
	rendered, known := o.shown[t]
	if !known {
		users := o.users
		view := o.subject.withoutValues(o.subject.shownToCluster(o.input.Pod), []*loaded{t})
		rendered = o.renderUnset(t, view, func(_ string, container *jsontree.Node) *jsontree.Node { return container })
		o.users = users // what is there now may be undone
		if o.shown == nil {
			o.shown = map[*loaded]*candidate{}
		}
		o.shown[t] = rendered
	}
	return rendered
}

// addedBy returns what a template adds to a container that is not its own.
func (o *owners) addedBy(other *candidate, list string, container *jsontree.Node) (all []*jsontree.Node) {
	again, app := *other, appContainer{list: list}
	if again.input.See(other.input.Pod); !other.t.HasForEach() || o.renderApp(&again, &app, container) != nil {
		return nil
	}
	for i := range app.fragments {
		all = append(all, &app.fragments[i])
	}
	return all
}

// addedByClusterTo returns what templates of the cluster add to a container of the candidate c, whose template is one of the namespace.
func (o *owners) addedByClusterTo(c *candidate, existing *jsontree.Node) []*jsontree.Node {
	own := c.ownContainer(existing)
	if own == nil {
		return nil
	}
	list := "initContainers"
	if o.subject.schema.At("spec").At("containers").Find(c.fragment.At("spec", "containers").Items(), existing) >= 0 {
		list = "containers"
	}
	return o.addedByCluster(list, c.restoreProtected(existing, own))
}

// restoreProtected returns a container of the pod with the template's values in protected fields that
// differ.
func (c *candidate) restoreProtected(existing, own *jsontree.Node) *jsontree.Node {
	all := *existing
	container := drift.Comparison{Pod: &c.subject.compared, At: c.subject.beside, Field: c.subject.schema.At("spec").At("containers").Elem.AsField()}
	for _, path := range c.t.protect {
		if path[0] != templates.ProtectAll {
			if container.FindAtPath(&all, own, path) != nil {
				all = c.subject.restoreValue(&all, own, path)
			}
			continue
		}
		for _, of := range [2]*jsontree.Node{own, existing} {
			for _, m := range of.Members() {
				if name := m.Name(); c.t.Protects(name) && container.FindProtected(c.t.Template, name, &all, own) != nil {
					all = c.subject.restoreValue(&all, own, []string{name})
				}
			}
		}
	}
	return &all
}

// restoreValue returns an object with the value that own has at a path, or without one.
func (s *subject) restoreValue(pod, own *jsontree.Node, path []string) jsontree.Node {
	there, ours := pod.Get(path[0]), own.Get(path[0])
	switch {
	case len(path) > 1 && there.Kind() == jsontree.Object:
		return s.nodes.With(pod, path[0], s.restoreValue(there, ours, path[1:]))
	case ours == nil:
		return s.nodes.Without(pod, path[0])
	}
	return s.nodes.With(pod, path[0], *ours)
}
