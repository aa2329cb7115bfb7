// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// owners finds out which containers and values of the pod belong to a template.
//
// What templates add in a round is remembered for the later rounds. In a pod that was injected before, only what the templates
// render shows it. A template may render something only if it is absent, so it is also rendered for the pod without its own
// values, see [owners.eachUnset].
type owners struct {
	subject     *subject
	input       *cel.Input // for this round, before it adds anything
	candidates  []*candidate
	contributed []candidate               // what templates added in earlier rounds, in this order
	leftOut     []*candidate              // templates that are left out, whose containers the pod may have from an earlier run
	flipped     []*loaded                 // templates that do not apply now, perhaps because of additions
	users       [2][]appContainer         // see userContainers
	later       map[*candidate]*candidate // see renderUnplanned
	unsets      map[*loaded][2]*candidate // see eachUnset
	shown       map[*loaded]*candidate    // see renderForCluster
	bare        map[string]*jsontree.Node // see withoutAll
}

// bringerOf returns the template that a container of the pod belongs to, or nil. It also returns nil if that template is the one in
// besides. A container belongs to the template that added it. If nothing shows that, it belongs to the template with the strongest
// proof, and to the first of several, see proofStrength.
func (o *owners) bringerOf(existing *jsontree.Node, besides *loaded) *candidate {
	name := existing.Get("name").Text()
	if existing.IsNew() {
		for i := range o.contributed {
			if c := &o.contributed[i]; c.ownContainer(existing) != nil {
				return c.unlessOf(besides)
			}
		}
	}
	claims := func(c *candidate) bool { return c.claimsName(name, existing) }
	flipped := o.flippedBringers(existing, name)
	if len(flipped) == 0 && !slices.ContainsFunc(o.candidates, func(c *candidate) bool { return c.t != besides && claims(c) }) {
		return nil
	}
	all := flipped
	for _, c := range o.candidates {
		if claims(c) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *candidate) int { return a.t.index - b.t.index })
	var owner *candidate
	best := 0
	for _, c := range all {
		if existing.Added() && c.decision.Code == CodeInjected {
			return c.unlessOf(besides)
		}
		if proof := c.proofStrength(existing); proof > best {
			owner, best = c, proof
		}
	}
	return owner.unlessOf(besides)
}

// flippedBringers returns the templates that the pod records, that no longer apply, and that have a container with that name.
func (o *owners) flippedBringers(existing *jsontree.Node, name string) (all []*candidate) {
	for _, t := range o.flipped {
		if t.Brings(name) && o.subject.isRecorded(t) {
			o.eachUnset(t, func(c *candidate) bool {
				found := c.ownContainer(existing) != nil
				if found {
					all = append(all, c)
				}
				return !found
			})
		}
	}
	return all
}

// proofStrength returns how well it is proved that a container of the pod is the template's: 4 if they are equal, 3 if the pod is
// marked with the template and the container has everything of the template's, 2 if the pod is only marked, 1 if the container only
// has everything, and else 0.
func (c *candidate) proofStrength(existing *jsontree.Node) int {
	switch marked, same := c.subject.isMarked(c.t), c.matchesOwn(existing); {
	case same && c.subject.hasSameEffect(c.subject.containerSchema(), c.ownContainer(existing), existing):
		return 4
	case marked && same:
		return 3
	case marked:
		return 2
	case same:
		return 1
	}
	return 0
}

// unlessOf returns the candidate, or nil if it is a candidate of the template t.
func (c *candidate) unlessOf(t *loaded) *candidate {
	if c == nil || c.t.Template == t.Template {
		return nil
	}
	return c
}

// otherTemplates yields the templates other than besides that may have set a value of the pod, as they were rendered when they set it.
// Those that added something in earlier rounds come first if isNew reports that the value was added in this run. The
// others follow in the order of application. MayHave reports whether a template can set the value at all.
func (o *owners) otherTemplates(besides *loaded, isNew bool, mayHave func(t *loaded) bool) func(yield func(*candidate) bool) {
	return func(yield func(*candidate) bool) {
		if isNew {
			for i := range o.contributed {
				if !yield(&o.contributed[i]) {
					return
				}
			}
		}
		before, next := true, 0
		for _, t := range o.subject.templates {
			var c *candidate
			if next < len(o.candidates) && o.candidates[next].t == t {
				c = o.candidates[next]
				next++
			}
			switch {
			case t == besides:
				before = false
				continue
			case !mayHave(t):
				continue
			case c == nil:
				if !o.subject.isRecorded(t) || !slices.Contains(o.flipped, t) {
					continue
				}
			case before && !c.decision.Code.Succeeded(), !before && !o.subject.isMarked(t):
				continue
			case before:
				if !yield(c) {
					return
				}
			default: // it may have added something in an earlier round
				if later := o.renderUnplanned(c); later != nil && !yield(later) {
					return
				}
			}
			if c != nil && !t.readsPod {
				continue
			}
			if !o.eachUnset(t, yield) {
				return
			}
		}
	}
}

// renderUnplanned returns a candidate that has not been planned yet in this round, with what it adds to app containers, or nil if
// it cannot be rendered. It renders each template once in a round, however many conflicts there are.
func (o *owners) renderUnplanned(c *candidate) *candidate {
	later, known := o.later[c]
	if !known {
		again := *c
		again.input.See(c.input.Pod) // the pod has a part of another template now, which may be undone
		users := o.users
		if again.apps, again.appsByName = nil, nil; o.renderApps(&again) == nil {
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

// describeOwners returns two parts of a sentence about what the pod has without this template. Have is the subject and the verb, for
// example "the pod has", and names other templates that added something. Where is the place to change it.
func (o *owners) describeOwners(of *loaded) (have, where string) {
	var names []string
	for c := range o.otherTemplates(of, true, func(*loaded) bool { return true }) {
		if c.t.Template != of.Template && !slices.Contains(names, c.t.Name) {
			names = append(names, c.t.Name)
		}
	}
	if len(names) == 0 {
		return "the pod has", "in the pod"
	}
	const most = 4
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return "the template " + strings.Join(names, ", ") + " and the pod have", "in one of them"
}

// bringsVolume reports whether the template has a volume with this name.
func (c *candidate) bringsVolume(volume string) bool {
	return slices.ContainsFunc(c.fragment.At("spec", "volumes").Items(), func(v jsontree.Node) bool { return v.Get("name").IsText(volume) })
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
func (o *owners) renderApp(c *candidate, app *appContainer, container *jsontree.Node) (err error) {
	if app.fragments, err = c.t.ForEach(&c.input, c.values, c.subject.foreseenPart(container, c.subject.schema.At("spec").At(app.list).Elem), app.list == "initContainers"); err != nil {
		return err
	}
	for j := range app.fragments {
		if c.t.AsksIfSet() {
			var taken []takenVariable
			app.fragments[j], taken = c.subject.resolveVariables(container, app.fragments[j])
			app.taken = append(app.taken, taken...)
		}
		app.fragments[j] = schema.WithoutDisallowed(c.subject.nodes, c.subject.pod, app.fragments[j])
		if c.subject.podResources() {
			app.fragments[j] = c.withoutResources(app.fragments[j], container.Get("name").Text())
		}
	}
	return nil
}

// userContainers returns the containers of the pod that belong to no template. The result differs
// between required templates and others, see belongsToTemplate. It is computed again only if something was added.
func (o *owners) userContainers(required bool) []appContainer {
	known := &o.users[0]
	if required {
		known = &o.users[1]
	}
	if *known != nil {
		return *known
	}
	*known = []appContainer{}
	for _, list := range schema.ContainerLists() {
		items := o.subject.pod.At("spec", list).Items()
		for i, token := range pointerTokens(items) { // for a required template, an added container may count as the user's
			if items[i].Kind() == jsontree.Object && !o.belongsToTemplate(&items[i], required) {
				*known = append(*known, appContainer{list: list, index: i, token: token, name: items[i].Get("name").Text()})
			}
		}
	}
	return *known
}

// belongsToTemplate reports whether a container of the pod belongs to a template, not to the user. A template that does not apply
// any more counts, too, because its own additions may be the reason. If required is true, the answer is for required templates. For
// these, an annotation is no proof: the container must be hidden or what a template renders now, and not exposed.
func (o *owners) belongsToTemplate(existing *jsontree.Node, required bool) bool {
	name := existing.Get("name").Text()
	if !o.subject.isBrought(name) {
		return false
	}
	if required {
		return !o.subject.exposed[name] && (o.subject.hidesContainer(existing, nil) || isRendered(existing, o.candidates))
	}
	return slices.ContainsFunc(o.flipped, func(t *loaded) bool { return t.Brings(name) && o.subject.isMarked(t) }) ||
		slices.ContainsFunc(o.candidates, func(c *candidate) bool {
			return c.t.Brings(name) && (o.subject.isMarked(c.t) || c.matchesOwn(existing))
		})
}
