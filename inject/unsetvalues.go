// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// A template may add something only if the pod does not have it. After the addition, its own condition is false, and it no longer
// renders what it has added. The addition of another template can make its condition false, too. Nothing in the pod shows who
// set the value. It counts as the template's if the template would render it for the pod without the values that may be the
// template's own, or without the values that may be of any template. The pod without these values is called unset.

// isRecorded reports whether the pod records an injection of the template.
func (s *subject) isRecorded(t *loaded) bool {
	return s.annotation(t.injected) != nil && !s.isCanarys(t)
}

// eachUnset yields up to two candidates of a template: as it would be rendered for the pod without the values that may be its own, and
// without those that may be of any template. It leaves out a candidate if that pod would not get the template. It returns false if
// yield does. It renders each template once in a round.
func (o *owners) eachUnset(t *loaded, yield func(*candidate) bool) bool {
	known, ok := o.unsets[t]
	if !ok {
		users := o.users
		own := []*loaded{t}
		known[0] = o.renderUnset(t, o.subject.withoutValues(o.input.Pod, own), func(_ string, container *jsontree.Node) *jsontree.Node { return o.subject.withoutEach(container, own) })
		if t.readsPod { // otherwise it is the same
			pod := o.withoutAll("", func() *jsontree.Node { return o.subject.withoutValues(o.input.Pod, o.possibleAdders()) })
			known[1] = o.renderUnset(t, pod, func(list string, container *jsontree.Node) *jsontree.Node {
				return o.withoutAll(list+"/"+container.Get("name").Text(), func() *jsontree.Node { return o.subject.withoutEach(container, o.possibleAdders()) })
			})
		}
		o.users = users // what is there now may be undone
		if o.unsets == nil {
			o.unsets = map[*loaded][2]*candidate{}
		}
		o.unsets[t] = known
	}
	for _, c := range known {
		if c != nil && !yield(c) {
			return false
		}
	}
	return true
}

// possibleAdders returns the templates that may have added something to the pod.
func (o *owners) possibleAdders() (all []*loaded) {
	for _, c := range o.candidates {
		all = append(all, c.t)
	}
	for _, t := range o.flipped {
		if o.subject.isRecorded(t) {
			all = append(all, t)
		}
	}
	return all
}

// withoutAll returns the pod, or a container in it, without the values that may be of any template. What identifies it: "" for the pod,
// or list and name of the container. It calls compute once in a round for each.
func (o *owners) withoutAll(what string, compute func() *jsontree.Node) *jsontree.Node {
	bare := o.bare[what]
	if bare == nil {
		if bare = compute(); o.bare == nil {
			o.bare = map[string]*jsontree.Node{}
		}
		o.bare[what] = bare
	}
	return bare
}

// renderUnset renders a template for a pod without certain values, or returns nil if the pod would not get the template. The function
// without returns the same of an app container.
func (o *owners) renderUnset(t *loaded, pod *jsontree.Node, without func(list string, container *jsontree.Node) *jsontree.Node) *candidate {
	c := &candidate{subject: o.subject, t: t, input: *o.input, decision: &Decision{}}
	c.input.See(pod)
	if c.readParams() != nil {
		return nil
	}
	if ok, err := t.Condition(&c.input, c.values); err != nil || !ok {
		return nil
	}
	var err error
	if c.fragment, err = t.Render(&c.input, c.values); err != nil {
		return nil
	}
	c.prepareFragment()
	for _, app := range o.userContainers(t.Spec.Required) {
		container := without(app.list, &o.subject.pod.At("spec", app.list).Items()[app.index])
		if !t.HasForEach() || o.renderApp(c, &app, container) != nil {
			return c
		}
		if len(app.fragments) > 0 {
			c.apps = append(c.apps, app)
		}
	}
	return c
}

// withoutRecord returns a pod without the record of a template, which its condition may read.
func (s *subject) withoutRecord(pod *jsontree.Node, t *loaded) *jsontree.Node {
	metadata := pod.Get("metadata")
	annotations := metadata.Get("annotations")
	switch {
	case annotations.Get(t.injected) == nil:
		return pod
	case len(annotations.Members()) == 1:
		metadata = s.storeNode(s.nodes.Without(metadata, "annotations"))
	default:
		metadata = s.storeNode(s.nodes.With(metadata, "annotations", s.nodes.Without(annotations, t.injected)))
	}
	return s.storeNode(s.nodes.With(pod, "metadata", *metadata))
}

// withoutValues returns a pod without the values that the templates in of may have set, whatever their conditions are, and without
// the records of these templates. It leaves their containers in the pod, because these are hidden from expressions already, see
// withoutHidden.
func (s *subject) withoutValues(pod *jsontree.Node, of []*loaded) *jsontree.Node {
	for _, t := range of {
		if pod = s.withoutFragment(s.withoutRecord(pod, t), t.PodFragment(), s.schema); pod == nil {
			return s.storeNode(jsontree.Members())
		}
	}
	if !slices.ContainsFunc(of, func(t *loaded) bool { return t.HasForEach() }) {
		return pod
	}
	spec := pod.Get("spec")
	for _, list := range schema.ContainerLists() {
		items := spec.Get(list).Items()
		if len(items) == 0 {
			continue
		}
		rest := s.nodes.Nodes(len(items))
		for i := range items {
			rest = append(rest, *s.withoutEach(&items[i], of))
		}
		spec = s.storeNode(s.nodes.With(spec, list, jsontree.Items(rest...)))
	}
	if spec == pod.Get("spec") {
		return pod
	}
	return s.storeNode(s.nodes.With(pod, "spec", *spec))
}

// withoutEach returns an app container without the values that forEachContainer of the templates in of may have set.
func (s *subject) withoutEach(container *jsontree.Node, of []*loaded) *jsontree.Node {
	rest := container
	for _, t := range of {
		for _, each := range t.each {
			if rest = s.withoutFragment(rest, each.Add, s.containerSchema()); rest == nil {
				return s.storeNode(jsontree.Members())
			}
		}
	}
	return rest
}

// withoutFragment returns an object of the pod without what a fragment may have set in it: constant members and items if the pod's
// are equal, and computed ones whatever their values are. It returns nil if nothing is left.
func (s *subject) withoutFragment(object *jsontree.Node, part fragment.View, in *schema.Schema) *jsontree.Node {
	rest := object
	for name, child := range part.Children() {
		there, f := rest.Get(name), in.At(name)
		if there == nil || f.Elem != nil && f.Elem.GoType == schema.ContainerType() {
			continue
		}
		var left *jsontree.Node
		switch static := child.Static(); {
		case static != nil && (f.Shape == schema.Unit || !child.IsObject() && !child.IsList()):
			if left = there; there.Kind() == static.Kind() && s.hasSameEffect(f.Schema, there, static) {
				left = nil
			}
		case f.Shape == schema.Unit || child.Whole() || !child.IsObject() && !child.IsList():
		case child.IsObject() && there.Kind() == jsontree.Object:
			if static == nil || len(static.Members())+len(there.Members()) > 0 { // otherwise both are {}
				left = s.withoutFragment(there, child, f.Schema)
			}
		case child.IsList() && there.Kind() == jsontree.Array:
			left = s.withoutItems(there, child, f.Schema)
		default:
			left = there
		}
		switch left {
		case there:
		case nil:
			rest = s.storeNode(s.nodes.Without(rest, name))
		default:
			rest = s.storeNode(s.nodes.With(rest, name, *left))
		}
	}
	if in.GoType == schema.ResourcesType() && rest != object {
		rest = s.withoutDerived(object, rest, in)
	}
	if rest != object && len(rest.Members()) == 0 {
		return nil
	}
	return rest
}

// withoutDerived returns rest, which is resources without some limits, also without the requests that the API server derived from
// these limits.
func (s *subject) withoutDerived(resources, rest *jsontree.Node, in *schema.Schema) *jsontree.Node {
	requests := rest.Get("requests")
	for _, limit := range resources.Get("limits").Members() {
		name := limit.Name()
		if rest.At("limits", name) == nil && in.At("limits").Elem.Contains(requests.Get(name), &limit) {
			requests = s.storeNode(s.nodes.Without(requests, name))
		}
	}
	switch {
	case requests == rest.Get("requests"):
		return rest
	case len(requests.Members()) == 0:
		return s.storeNode(s.nodes.Without(rest, "requests"))
	}
	return s.storeNode(s.nodes.With(rest, "requests", *requests))
}

// withoutItems is withoutFragment for a list.
func (s *subject) withoutItems(list *jsontree.Node, part fragment.View, in *schema.Schema) *jsontree.Node {
	items := list.Items()
	rest := s.nodes.Nodes(len(items))
	for i := range items {
		if !slices.ContainsFunc(childrenOf(part), func(own fragment.View) bool { return s.mayBeItem(&items[i], own, in) }) {
			rest = append(rest, items[i])
		}
	}
	switch len(rest) {
	case len(items):
		return list
	case 0:
		return nil
	}
	return s.storeNode(jsontree.Items(rest...))
}

func childrenOf(part fragment.View) (all []fragment.View) {
	for _, child := range part.Children() {
		all = append(all, child)
	}
	return all
}

// mayBeItem reports whether an item of the pod may be an item of a fragment: it is equal to a constant item, or it has the key of a
// computed item. If the items of the list have no key, all fields that the computed item has must be possible.
func (s *subject) mayBeItem(item *jsontree.Node, own fragment.View, in *schema.Schema) bool {
	if static := own.Static(); static != nil {
		if static.Get(fragment.IfSetKey) != nil {
			static = s.storeNode(s.nodes.Without(static, fragment.IfSetKey))
		}
		return item.Kind() == static.Kind() && s.hasSameEffect(in.Elem, item, static)
	}
	if own.IsSpread() || own.Whole() {
		return true
	}
	possible := false
	for name, child := range own.Children() {
		switch keyed := in.Key != ""; {
		case keyed && name == in.Key:
			return mayBeValue(item.Get(name), child, true)
		case keyed || name == fragment.IfSetKey:
			continue
		}
		if possible = mayBeValue(item.Get(name), child, false); !possible {
			return false
		}
	}
	return possible
}

// mayBeValue reports whether a value of the pod may be the constant or computed string of a fragment. A key without a constant part
// identifies nothing.
func mayBeValue(there *jsontree.Node, own fragment.View, isKey bool) bool {
	if static := own.Static(); static != nil {
		return static.SameText(there) || static.String() == there.String()
	}
	pieces, _ := own.Pieces()
	if len(pieces) == 0 {
		return !isKey
	}
	first, last := pieces[0].Literal, pieces[len(pieces)-1].Literal
	return (!isKey || first+last != "") && strings.HasPrefix(there.Text(), first) && strings.HasSuffix(there.Text(), last)
}
