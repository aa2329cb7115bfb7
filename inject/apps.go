// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/templates/tree"
)

// appContainer is a container that the user wrote, and what it is to get.
type appContainer struct {
	list      string
	index     int
	name      string // in a pointer: the index among those that came, or -
	fragments []tree.Node
}

// maxContainers bounds what a pod can cost: no node runs as many, and the API
// server asks before it has looked at the pod.
const maxContainers = 500

// tooMany says which of the pod's lists is too long for any template, or "". What
// templates bring does not count, or a pod would have too many by being injected.
func (r *run) tooMany() string {
	for _, list := range containerLists() {
		items := r.pod.At("spec", list).Items()
		own := len(items)
		if own <= maxContainers {
			continue
		}
		if own <= maxContainers+len(r.brings) {
			for i := range items {
				if r.brings[items[i].Get("name").Text()] > 0 {
					own--
				}
			}
		}
		if own > maxContainers {
			return fmt.Sprintf("the pod has more than %d %s", maxContainers, list)
		}
	}
	return ""
}

// renderApps renders what the template adds to each container that the user
// wrote: once, so that looking and adding go by the very same.
func (c *candidate) renderApps() error {
	if !c.t.HasForEach() {
		return nil
	}
	for _, app := range c.userContainers(c.t.Spec.Required) {
		container := &c.pod.At("spec", app.list).Items()[app.index]
		var err error
		if app.fragments, err = c.t.ForEach(&c.input, c.values, container, app.list == "initContainers"); err != nil {
			return err
		}
		for j := range app.fragments {
			app.fragments[j] = c.fitting(app.fragments[j])
			if c.podResources() {
				app.fragments[j] = c.withoutResources(app.fragments[j], container.Get("name").Text())
			}
		}
		if len(app.fragments) > 0 {
			c.apps = append(c.apps, app)
		}
	}
	return nil
}

// userContainers are the containers of the pod that no template brought, seen by
// a template that is required or by one that is not. They are looked for anew
// only when something was added.
func (r *run) userContainers(required bool) []appContainer {
	known := &r.users[0]
	if required {
		known = &r.users[1]
	}
	if *known != nil {
		return *known
	}
	*known = []appContainer{}
	for _, list := range containerLists() {
		items := r.pod.At("spec", list).Items()
		for i, name := range numbered(items) { // one that was added may be as good as the user's for a required template by now
			if items[i].Kind() == tree.Object && !r.brought(&items[i], required) {
				*known = append(*known, appContainer{list: list, index: i, name: name})
			}
		}
	}
	return *known
}

// eachAppContainer merges what the template adds to each app container. Nothing
// has been inserted before them yet.
func (p *planner) eachAppContainer() {
	elem := p.schema.At("spec").At("containers").Elem
	for i := range p.apps {
		if p.req.gone() {
			return
		}
		app := &p.apps[i]
		existing := p.pod.At("spec", app.list).Items()
		if own := p.own(&existing[app.index]); own != nil && !p.wasMarked &&
			p.schema.At("spec").At(app.list).Find(existing, own) == app.index && !elem.Contains(&existing[app.index], own) {
			p.theirs = append(p.theirs, own.Get("name").Text())
		}
		at := p.at.Member("spec").Member(app.list).Member(app.name)
		before := len(p.conflicts)
		if p.checkClashes(app.fragments, elem, at); len(p.conflicts) > before {
			continue
		}
		if existing[app.index].Added() {
			p.log.Own(&existing[app.index])
		}
		for j := range app.fragments {
			if p.checkContainer(app.list, &existing[app.index], &app.fragments[j], at) {
				p.object(&existing[app.index], &app.fragments[j], elem, at)
				p.checkMerged(&existing[app.index], &app.fragments[j], at)
			}
		}
	}
}

// brought says whether a container of the pod is a template's and not the
// user's. A template that no longer wants this pod counts too, for what it added
// itself may be why. What a required template gives to every container, none
// escapes by an annotation alone: it must run what the template's container runs
// that it is said to be.
func (r *run) brought(existing *tree.Node, required bool) bool {
	name := existing.Get("name").Text()
	if r.brings[name] == 0 {
		return false
	}
	for _, t := range r.flipped {
		if slices.Contains(t.Containers, name) && r.marked(t) && !required {
			return true
		}
	}
	for _, other := range r.candidates {
		if !slices.Contains(other.t.Containers, name) {
			continue
		}
		if required && !other.sameProgram(existing) {
			continue
		}
		if r.marked(other.t) || other.same(existing) {
			return true
		}
	}
	return false
}

// sameProgram says whether a container runs what the template's does.
func (c *candidate) sameProgram(existing *tree.Node) bool {
	own := c.own(existing)
	if own == nil {
		return false
	}
	for _, field := range []string{"image", "command", "args"} {
		if slices.Contains(c.t.Computed, field) {
			continue
		}
		there, ours := existing.Get(field), own.Get(field)
		if (there == nil) != (ours == nil) || there != nil && !c.schema.At("spec").At("containers").Elem.At(field).Contains(there, ours) {
			return false
		}
	}
	return true
}

// marked says whether the pod says that a container of the name that a template
// brings is the template's: because it was injected, or is to be filled in. The
// annotation proves nothing, and need not: all that it lets happen is that what
// the container lacks is added.
func (r *run) marked(t *loaded) bool {
	if len(r.annotations.Members()) < longList {
		return r.says(t)
	}
	marked, known := r.marks[t]
	if !known {
		if r.marks == nil {
			r.marks = map[*loaded]bool{}
		}
		marked = r.says(t)
		r.marks[t] = marked
	}
	return marked
}

func (r *run) says(t *loaded) bool {
	return r.annotation(t.injected) != nil ||
		r.annotation(t.customize).IsText("true")
}

// same says whether a container has all that the template's container of that
// name would have.
func (c *candidate) same(existing *tree.Node) bool {
	own := c.own(existing)
	return own != nil && c.schema.At("spec").At("containers").Elem.Contains(existing, own)
}

// own is the template's container of that name, or nil.
func (c *candidate) own(existing *tree.Node) *tree.Node {
	for _, list := range containerLists() {
		items := c.fragment.At("spec", list).Items()
		if i := c.schema.At("spec").At(list).Find(items, existing); i >= 0 {
			return &items[i]
		}
	}
	return nil
}
