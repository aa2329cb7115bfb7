// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/tree"
)

// owners finds out which containers of the pod belong to a template.
type owners struct {
	subject    *subject
	candidates []*candidate
	flipped    []*loaded         // templates that do not apply, which additions may change
	users      [2][]appContainer // see userContainers
}

// bringer returns the other template that a container of the pod belongs to, or "". A name has one
// owner. It is the template that added the container in this look, or else the one whose container
// is equal, or else the first one that the pod marks as injected.
func (o *owners) bringer(existing *tree.Node, besides *loaded, wasMarked bool) string {
	name, before := existing.Get("name").Text(), true
	for _, c := range o.candidates {
		if c.t == besides {
			before = false
			continue
		}
		if slices.Contains(c.t.Containers, name) &&
			(existing.Added() && c.decision.Code == CodeInjected || c.same(existing) || c.subject.marked(c.t) && (before || !wasMarked)) {
			return c.t.Name
		}
	}
	return ""
}

// standsBefore reports whether a container at the front of a list was put there by an earlier
// template, or by this one from earlier in its own list. wasMarked reports whether the pod was
// marked before this template added anything.
func (o *owners) standsBefore(existing, fragment *tree.Node, of *loaded, wasMarked bool) bool {
	if existing.Added() {
		return true
	}
	name := existing.Get("name").Text()
	for _, c := range o.candidates {
		own := c.t.Containers
		if c.t == of {
			own = own[:slices.Index(own, fragment.Get("name").Text())]
		}
		if slices.Contains(own, name) {
			return c.t == of && wasMarked || c.t != of && c.subject.marked(c.t) || c.same(existing)
		}
		if c.t == of {
			return false
		}
	}
	return false
}

// userContainers returns the containers of the pod that no template brought. The result differs
// between required templates and others. It is computed again only if something was added.
func (o *owners) userContainers(required bool) []appContainer {
	known := &o.users[0]
	if required {
		known = &o.users[1]
	}
	if *known != nil {
		return *known
	}
	*known = []appContainer{}
	for _, list := range containerLists() {
		items := o.subject.pod.At("spec", list).Items()
		for i, name := range numbered(items) { // for a required template, an added container may count as the user's
			if items[i].Kind() == tree.Object && !o.brought(&items[i], required) {
				*known = append(*known, appContainer{list: list, index: i, name: name})
			}
		}
	}
	return *known
}

// brought reports whether a container of the pod belongs to a template, not to the user. A template
// that no longer wants this pod counts too, because its own additions may be the reason. For
// required templates, an annotation is not enough: the container must also run the same program as
// the template's container. Otherwise an annotation could hide a container from a required
// template.
func (o *owners) brought(existing *tree.Node, required bool) bool {
	name := existing.Get("name").Text()
	if o.subject.brings[name] == 0 {
		return false
	}
	for _, t := range o.flipped {
		if slices.Contains(t.Containers, name) && o.subject.marked(t) && !required {
			return true
		}
	}
	for _, other := range o.candidates {
		if !slices.Contains(other.t.Containers, name) {
			continue
		}
		if required && !other.sameProgram(existing) {
			continue
		}
		if o.subject.marked(other.t) || other.same(existing) {
			return true
		}
	}
	return false
}
