// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

// owners finds out which containers of the pod belong to a template.
type owners struct {
	subject    *subject
	candidates []*candidate
	leftOut    []*candidate              // their containers in the pod may be right
	flipped    []*loaded                 // templates that do not apply, which additions may change
	users      [2][]appContainer         // see userContainers
	later      map[*candidate]*candidate // see rendered
}

// bringer returns the other template that a container of the pod belongs to, or "". A name has one
// owner. It is the template that added the container in this look, or else the one whose container
// is equal, or else the first one that the pod marks as injected.
func (o *owners) bringer(existing *tree.Node, besides *loaded, wasMarked bool) string {
	before, name := true, existing.Get("name").Text()
	for _, c := range o.candidates {
		if c.t == besides {
			before = false
			continue
		}
		if c.claims(name, existing) &&
			(existing.Added() && c.decision.Code == CodeInjected || c.same(existing) || c.subject.marked(c.t) && (before || !wasMarked)) {
			return c.t.Name
		}
	}
	return ""
}

// contributor returns the other template that brings something to the pod, or "" if the pod has it
// itself. The function has reports whether a template renders it.
func (o *owners) contributor(besides *loaded, has func(c *candidate) bool) string {
	name, _ := o.setter(besides, has)
	return name
}

// setter also reports whether the other template comes before this one, and is complete. Of two templates that want
// different values, the earlier one is injected.
func (o *owners) setter(besides *loaded, has func(c *candidate) bool) (name string, earlier bool) {
	before := true
	for _, c := range o.candidates {
		switch {
		case c.t == besides:
			before = false
		case before && c.decision.Code.Succeeded() && has(c):
			return c.t.Name, true
		case !before && c.subject.marked(c.t):
			if later := o.rendered(c); later != nil && has(later) { // it may have added something in an earlier look
				return c.t.Name, false
			}
		}
	}
	return "", false
}

// rendered returns a template that has not been planned yet, with what it adds to each container, or nil
// if it fails. It renders each template once in a look, however many conflicts there are.
func (o *owners) rendered(c *candidate) *candidate {
	later, known := o.later[c]
	if !known {
		again := *c
		again.input.See(c.input.Pod) // the pod has a part of another template now, which may be undone
		users := o.users
		if again.apps = nil; o.renderApps(&again) == nil {
			later = &again
		}
		o.users = users // what is there now may be undone
		if o.later == nil {
			o.later = map[*candidate]*candidate{}
		}
		o.later[c] = later
	}
	return later
}

// before returns parts of a sentence about what the pod has before this template: the owners,
// which may be templates too, and the place to change it.
func (o *owners) before(of *loaded) (have, where string) {
	var names []string
	o.contributor(of, func(c *candidate) bool {
		names = append(names, c.t.Name)
		return false
	})
	if len(names) == 0 {
		return "the pod has", "in the pod"
	}
	const most = 4
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return "the template " + strings.Join(names, ", ") + " and the pod have", "in one of them"
}

// brings reports whether the template has a volume with this name.
func (c *candidate) brings(volume string) bool {
	return slices.ContainsFunc(c.fragment.At("spec", "volumes").Items(), func(v tree.Node) bool { return v.Get("name").IsText(volume) })
}

// renderApps renders what the template adds to each container that the user wrote. It does so only
// once, so that checks and additions use the same values.
func (o *owners) renderApps(c *candidate) error {
	if !c.t.HasForEach() {
		return nil
	}
	for _, app := range o.userContainers(c.t.Spec.Required) {
		container := &c.subject.pod.At("spec", app.list).Items()[app.index]
		if err := o.renderApp(c, &app, container); err != nil {
			return err
		}
		if len(app.fragments) > 0 {
			c.apps = append(c.apps, app)
		}
	}
	return nil
}

// renderApp renders what the template adds to one container.
func (o *owners) renderApp(c *candidate, app *appContainer, container *tree.Node) (err error) {
	if app.fragments, err = c.t.ForEach(&c.input, c.values, c.subject.foreseen(container, c.subject.schema.At("spec").At(app.list).Elem), app.list == "initContainers"); err != nil {
		return err
	}
	for j := range app.fragments {
		if c.t.AsksIfSet() {
			var taken []takenVariable
			app.fragments[j], taken = c.subject.resolveVariables(container, app.fragments[j])
			app.taken = append(app.taken, taken...)
		}
		app.fragments[j] = c.subject.fitting(app.fragments[j])
		if c.subject.podResources() {
			app.fragments[j] = c.withoutResources(app.fragments[j], container.Get("name").Text())
		}
	}
	return nil
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
				*known = append(*known, appContainer{list: list, index: i, name: name, container: items[i].Get("name").Text()})
			}
		}
	}
	return *known
}

// brought reports whether a container of the pod belongs to a template, not to the user. A template
// that no longer wants this pod counts too, because its own additions may be the reason. For
// required templates, an annotation is no proof: the container must be what a template now renders.
func (o *owners) brought(existing *tree.Node, required bool) bool {
	name := existing.Get("name").Text()
	if !o.subject.isBrought(name) {
		return false
	}
	if required {
		return !o.subject.exposed[name] && (o.subject.hides(existing, nil) || isRendered(existing, o.candidates))
	}
	return slices.ContainsFunc(o.flipped, func(t *loaded) bool { return t.Brings(name) && o.subject.marked(t) }) ||
		slices.ContainsFunc(o.candidates, func(c *candidate) bool {
			return c.t.Brings(name) && (o.subject.marked(c.t) || c.same(existing))
		})
}
