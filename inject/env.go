// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// A container of the pod may have an environment variable that a template sets, too. The container's
// variable always stays unchanged. If the template's value is a part of it, nothing is missing.

// checkVariables reports a conflict for each variable of an app container that the template needs with another value.
func (p *planner) checkVariables(app *appContainer, container *jsontree.Node, at schema.Pointer) {
	if len(app.taken) == 0 {
		return // without reading the variables
	}
	env := container.Get("env").Items()
	for i := range app.taken {
		t := &app.taken[i]
		name, do := t.variable.Get("name"), "remove it"
		if value := t.variable.Get("value"); value != nil {
			do = "add this to it: " + value.Text()
		}
		if other := p.findContributor(func(c *candidate) bool { return c.setsVariable(&env[t.own]) }); other != "" {
			p.reportConflict(at.Member("env").Item(env, t.own), &env[t.own], &t.variable, "the template %s sets the variable %s in the container %s, which this template needs for itself; leave out one of them",
				other, name.Text(), container.Get("name").Text())
			continue
		}
		p.reportConflict(at.Member("env").Item(env, t.own), &env[t.own], &t.variable, "the container %s has its own variable %s, which the template needs; %s",
			container.Get("name").Text(), name.Text(), do)
	}
}

// setsVariable reports whether the template sets a variable of the user's containers to this value.
func (c *candidate) setsVariable(variable *jsontree.Node) bool {
	for i := range c.apps {
		for k := range c.apps[i].fragments {
			if slices.ContainsFunc(c.apps[i].fragments[k].Get("env").Items(), func(v jsontree.Node) bool {
				return v.Get("name").IsText(variable.Get("name").Text()) && c.subject.holdsVariable(variable, &v)
			}) {
				return true
			}
		}
	}
	return false
}

// keepVariable handles a variable that a container of the user's has.
func (p *planner) keepVariable(pod, fragment *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	if holdsWord(pod, fragment) {
		p.found = true
		return
	}
	before := len(p.kept)
	if p.keepItem(pod, fragment, s, at); len(p.kept) == before {
		return // nothing differs, or a conflict
	}
	p.keptVariables = append(p.keptVariables, fragment.Get("name").Text())
}

// noteVariables adds one note about all variables of a container that differ from the template's and stay.
func (p *planner) noteVariables(container *jsontree.Node) {
	if len(p.keptVariables) == 0 {
		return
	}
	names := p.keptVariables
	if len(names) > maxConflicts {
		names = append(names[:maxConflicts:maxConflicts], fmt.Sprintf("%d more", len(names)-maxConflicts))
	}
	p.recordNote(fmt.Sprintf("the container %s keeps its value of %s, which differs from the template's", container.Get("name").Text(), strings.Join(names, ", ")))
	p.keptVariables = p.keptVariables[:0]
}

// recordNote adds a note to the decision.
func (p *planner) recordNote(text string) {
	if len(p.notes) < maxConflicts {
		p.notes = append(p.notes, text)
	}
}
