// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/tree"
)

// owners know which containers of the pod are a template's.
type owners struct {
	subject    *subject
	candidates []*candidate
	flipped    []*loaded         // left out by what a template's addition may change
	users      [2][]appContainer // see userContainers
}

// bringer is the other template that a container of the pod belongs to, or "".
// A name has one owner: the template that brought it in this look, else the one
// whose container it equals, else the first that the pod marks as injected.
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

// standsBefore reports whether a container at the front of a list was put there by
// an earlier template, or by this one from earlier in its own list. wasMarked is whether
// the pod was marked before anything of this template was added.
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

// userContainers are the containers of the pod that no template brought, seen by
// a template that is required or by one that is not. They are looked for anew
// only when something was added.
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
		for i, name := range numbered(items) { // one that was added may be as good as the user's for a required template by now
			if items[i].Kind() == tree.Object && !o.brought(&items[i], required) {
				*known = append(*known, appContainer{list: list, index: i, name: name})
			}
		}
	}
	return *known
}

// brought says whether a container of the pod is a template's and not the
// user's. A template that no longer wants this pod counts too, for what it added
// itself may be why. What a required template gives to every container, none
// escapes by an annotation alone: it must run what the template's container runs
// that it is said to be.
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
