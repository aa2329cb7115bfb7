// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// keep handles a place at which there is another value than the template's. The function has reports whether another
// template sets the value that is there.
//
// Only an earlier template makes a difference for the outcome. A later one may have the same value as the pod before
// anything was injected, and afterwards nothing shows which of them it was.
func (p *planner) keep(at schema.Pointer, there, fragment *tree.Node, has func(c *candidate) bool) {
	rule := keepRule(at, there, fragment)
	kept := Kept{Difference: newDifference(at.String(), there, fragment)}
	var earlier bool
	if kept.By, earlier = p.owners.setter(p.t, has); kept.By == "" {
		kept.By = p.theirsBy()
	}
	outcome := rule.OfPod
	if earlier {
		outcome = rule.OfTemplate
	}
	switch known := func(o Obstacle) bool { return o.Difference == kept.Difference }; {
	case outcome != Conflicts:
		p.kept = append(p.kept, kept)
	case slices.ContainsFunc(p.conflicts, known):
	default:
		do := "change it there, or leave this template out"
		if kept.By != "" {
			do = "change one of the templates"
		}
		p.conflictAt(kept.Difference, "%s has %s for %s, and this template needs %s; %s", kept.Owner(), valueOf(there), p.placeOf(at, fragment), valueOf(fragment), do)
	}
}

// theirsBy returns the template of the namespace that added the container that is merged, or "".
func (p *planner) theirsBy() string { return p.subject.asked.theirs[p.merged.Get("name").Text()] }

// placeOf returns words for a place. They are the same after the injection, which moves containers.
func (p *planner) placeOf(at schema.Pointer, fragment *tree.Node) string {
	switch {
	case p.merged == nil && len(at) == 3 && at.Name(1) == "annotations":
		return "the annotation " + at.Name(0)
	case p.merged == nil && len(at) == 3 && at.Name(1) == "labels":
		return "the label " + at.Name(0)
	case p.merged == nil:
		return schema.Where(at.String())
	}
	place := schema.Where(at[inContainer:].String())
	switch at.Name(1) {
	case "env":
		place = "the variable " + fragment.Get("name").Text()
	case "volumeMounts":
		place = "the mount path " + fragment.Get("mountPath").Text()
	case "volumeDevices":
		place = "the device path " + fragment.Get("devicePath").Text()
	}
	return fmt.Sprintf("%s of the container %s", place, p.merged.Get("name").Text())
}

// valueOf returns words for a value, or for the one of a variable.
func valueOf(n *tree.Node) string {
	if value := n.Get("value"); value != nil {
		n = value
	}
	return templates.Cut(string(compact(n)), maxValue)
}

// leaveExcluded handles a value that the pod must not have beside what it has, or that it has in another form.
func (p *planner) leaveExcluded(at schema.Pointer, there, value *tree.Node) {
	p.kept = append(p.kept, Kept{newDifference(at.String(), there, value), p.theirsBy()})
}

// keepUnit handles a value that is merged as a whole.
func (p *planner) keepUnit(there, value *tree.Node, f *schema.Field, at schema.Pointer) {
	if keepRule(at, there, value).OfTemplate == Joins && p.join(there, value, at) {
		return
	}
	p.keep(at, there, value, func(c *candidate) bool {
		return c.hasAt(p, at, func(object *tree.Node, name string) bool {
			own := object.Get(name)
			return own != nil && f.Contains(there, own)
		})
	})
}

// join handles a list in one string, separated by commas. It adds the names that a value added by another template lacks,
// and reports whether no name is missing then.
func (p *planner) join(there, value *tree.Node, at schema.Pointer) bool {
	known, all := listed(there.Text()), there.Text()
	var rest []string
	for _, name := range listed(value.Text()) {
		if !slices.Contains(known, name) {
			rest = append(rest, name)
		}
	}
	switch {
	case len(rest) == 0:
		p.found = true
	case there.IsNew():
		names := strings.Join(rest, ",")
		p.addition(at, new(tree.Text(names)))
		p.journal.Change(there, tree.Text(strings.TrimPrefix(all+","+names, ",")))
	default:
		return false
	}
	return true
}

// keepItem handles an item of a list with keys.
func (p *planner) keepItem(there, value *tree.Node, s *schema.Schema, at schema.Pointer) {
	p.keep(at, there, value, func(c *candidate) bool {
		return c.hasAt(p, at[:len(at)-1], func(object *tree.Node, name string) bool {
			items := object.Get(name).Items()
			i := s.Find(items, there)
			return i >= 0 && (s.Elem.Contains(there, &items[i]) || s.Elem.GoType == schema.EnvVarType() && c.subject.holdsVariable(there, &items[i]))
		})
	})
}

// hasAt reports whether a template renders something in the object that has a place. In a container, the object may be in
// the template's own container, or in what the template adds to those of the pod.
func (c *candidate) hasAt(p *planner, at schema.Pointer, has func(object *tree.Node, name string) bool) bool {
	name := at.Name(0)
	if p.merged == nil {
		return has(at.In(&c.fragment, 0), name)
	}
	for _, i := range c.appsOf(p.merged.Get("name").Text()) {
		for k := range c.apps[i].fragments {
			if has(at.In(&c.apps[i].fragments[k], inContainer), name) {
				return true
			}
		}
	}
	own := c.own(p.merged)
	return own != nil && has(at.In(own, inContainer), name)
}

// appsOf returns the indexes of what a template adds to containers of the pod with that name.
func (c *candidate) appsOf(name string) []int {
	if c.appsByName == nil {
		c.appsByName = map[string][]int{}
		for i := range c.apps {
			c.appsByName[c.apps[i].container] = append(c.appsByName[c.apps[i].container], i)
		}
	}
	return c.appsByName[name]
}
