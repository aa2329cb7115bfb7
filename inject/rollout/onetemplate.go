// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
)

// A rollout can be limited to one template, because others may have other bounds. If a pod gets a canary, or loses
// one, this is up to the canary, and both templates change together.

// relatedStates returns the states that may matter to the template that the rollout is about.
func (p *Planner) relatedStates(states map[string]explain.State) map[string]explain.State {
	if p.Only == "" {
		return states
	}
	some := map[string]explain.State{}
	for _, t := range p.templatesInUse() {
		if t.Name == p.Only || t.Spec.Replaces == p.Only {
			some[t.Name] = states[t.Name]
		}
		if t.Name == p.Only && t.Spec.Replaces != "" {
			some[t.Spec.Replaces] = states[t.Spec.Replaces]
		}
	}
	return some
}

// divideStates returns the states of the templates that the rollout is about, and those of others that are not current.
func (p *Planner) divideStates(states map[string]explain.State, t *target) (own, others map[string]explain.State) {
	if p.Only == "" {
		return states, nil
	}
	by := map[string]string{} // the template that decides about another one
	for i, c := range p.templatesInUse() {
		if c.Spec.Replaces != "" && (states[c.Name] != explain.NotWanted || t.result.Decisions[i].Code.Wanted()) {
			by[c.Spec.Replaces] = c.Name
		}
	}
	own, others = map[string]explain.State{}, map[string]explain.State{}
	for name, s := range states {
		switch {
		case cmp.Or(by[name], name) == p.Only:
			own[name] = s
		case s.IsBehind():
			others[name] = s
		}
	}
	return own, others
}

// narrowChanges takes out the changes that are not of the template that the rollout is about. It returns why that is
// impossible, or "".
func (p *Planner) narrowChanges(o *Pod, own, others map[string]explain.State) (why string) {
	if p.Only == "" {
		return ""
	}
	held := slices.Sorted(maps.Keys(others))
	o.Changes = slices.DeleteFunc(o.Changes, func(c Change) bool {
		of := p.templatesOf(&c)
		if len(of) == 0 {
			return false
		}
		return slices.ContainsFunc(of, func(name string) bool { return others[name] != "" }) ||
			!slices.ContainsFunc(of, func(name string) bool { return own[name] != "" })
	})
	if len(held) == 0 {
		return ""
	}
	for i := range o.Changes {
		if c := &o.Changes[i]; len(p.templatesOf(c)) == 0 {
			return fmt.Sprintf("the template %s is not current either, and whether the %s is of this one is unknown", held[0], c.String())
		}
	}
	if len(o.Changes) == 0 && o.State.IsBehind() {
		return fmt.Sprintf("the template %s, which has the same containers, is not current either", held[0])
	}
	return ""
}

// templatesOf returns the templates that a change may be of: those that bring its container, or the one whose
// annotation it is.
func (p *Planner) templatesOf(c *Change) (names []string) {
	if key, ok := strings.CutPrefix(c.Path, "/metadata/annotations/"); ok {
		if c.Template != "" {
			return []string{c.Template}
		}
		if name, _, ok := templates.SplitAnnotation(schema.Unescape(key)); ok {
			return []string{name}
		}
		return nil
	}
	list, container, _ := c.container()
	for _, t := range p.templatesInUse() {
		if list != "" && t.Brings(container) {
			names = append(names, t.Name)
		}
	}
	return names
}
