// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// keepValue handles a place at which the pod has a value. The function has returns what a template renders there, if that is equal.
//
// A value that has more than the template's is enough if the pod's author wrote it. If another template set it, the templates
// want different things.
func (p *planner) keepValue(at schema.Pointer, there, fragment *jsontree.Node, in *schema.Schema, has func(c *candidate) *jsontree.Node) {
	enough := in.Contains(there, fragment) && (in.GoType != schema.VolumeMountType() || !otherFiles(there, fragment))
	if enough && (in.ContainsNoMore(there, fragment) || p.subject.onHost && p.subject.hasSameEffect(in, there, fragment)) {
		p.found = true
		return
	}
	kept := Kept{Difference: newDifference(at.String(), there, fragment)}
	whose := p.findSetter(&kept, at, there, has, func(its *jsontree.Node) bool { return p.subject.hasSameEffect(in, its, fragment) })
	rule := keepRule(at, there, fragment)
	outcome := rule.OfPod
	if whose == ofTemplate {
		outcome = rule.OfTemplate
	}
	switch known := func(o Obstacle) bool { return o.Difference == kept.Difference }; {
	case whose == ofSame, enough && whose == ofPod:
		p.found = true
	case whose == ofItself:
		p.reportConflictAt(kept.Difference, "the template adds two different things for %s: %s and %s; fix the template", p.placeOf(at, fragment), valueOf(there), valueOf(fragment))
	case outcome != Conflicts:
		p.kept = append(p.kept, kept)
	case slices.ContainsFunc(p.conflicts, known):
	default:
		do := "change it there, or leave this template out"
		if kept.By != "" {
			do = "change one of the templates"
		}
		p.reportConflictAt(kept.Difference, "%s has %s for %s, and this template needs %s; %s", kept.Owner(), valueOf(there), p.placeOf(at, fragment), valueOf(fragment), do)
	}
}

// valueSetter is who set a value, for a template that has another one.
type valueSetter int

const (
	ofPod      valueSetter = iota // the pod's author, or a template that counts as the author
	ofTemplate                    // another template, beside which this one would be incomplete
	ofItself                      // another entry of this template
	ofSame                        // a template with the same value, or this one, which has computed another value since
)

// findSetter finds out who set the value there, and notes the name of the template. The function has is that of keep, and same reports whether
// what a template renders is what this one does.
//
// A template of the namespace counts as the pod's author for one of the cluster. If the pod records this template, it was complete,
// so a later one with the value has only the same as the pod had.
func (p *planner) findSetter(kept *Kept, at schema.Pointer, there *jsontree.Node, has func(c *candidate) *jsontree.Node, same func(its *jsontree.Node) bool) valueSetter {
	isNew := there.IsNew() || p.merged.IsNew()
	for c := range p.owners.otherTemplates(p.t, isNew, func(t *loaded) bool { return p.mayHave(t, at) }) {
		its := has(c)
		if its == nil {
			continue
		}
		if c.t.Template == p.t.Template || same(its) {
			return ofSame
		}
		tenants := c.t.Namespace != "" && p.t.Namespace == ""
		if !tenants && c.t.index > p.t.index && p.wasInjected {
			continue
		}
		if kept.By = c.t.Name; tenants {
			return ofPod
		}
		return ofTemplate
	}
	if isNew && p.inApp && has(&candidate{subject: p.subject, t: p.t, fragment: *p.fragment, apps: p.apps}) != nil {
		return ofItself
	}
	kept.By = p.theirsBy()
	return ofPod
}

// mayHave reports whether a template can set something at a place, in the container of the pod that is merged, or in the pod.
func (p *planner) mayHave(t *loaded, at schema.Pointer) bool {
	if p.merged == nil {
		return t.PodFragment().Has(at.Name(len(at) - 1))
	}
	field := at.Name(len(at) - 1 - inContainer)
	return t.Brings(p.merged.Get("name").Text()) || slices.ContainsFunc(t.each, func(each templates.EachFragment) bool { return each.Add.Has(field) })
}

// theirsBy returns the template of the namespace that added the container that is merged, or "".
func (p *planner) theirsBy() string { return p.subject.request.theirs[p.merged.Get("name").Text()] }

// placeOf returns words for a place. They are the same after the injection, which moves containers.
func (p *planner) placeOf(at schema.Pointer, fragment *jsontree.Node) string {
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
	case "ports":
		place = "the port " + fragment.Get("containerPort").String()
	case "volumeDevices":
		place = "the device path " + fragment.Get("devicePath").Text()
	}
	return fmt.Sprintf("%s of the container %s", place, p.merged.Get("name").Text())
}

// valueOf returns words for a value, or for the one of a variable.
func valueOf(n *jsontree.Node) string {
	if value := n.Get("value"); value != nil {
		n = value
	}
	return problem.Cut(string(compactJSON(n)), maxValue)
}

// keepExcluded handles a value that the pod lacks, and must not have beside what it has in a field. The function has returns what
// a template renders for that field, if it is what is there.
func (p *planner) keepExcluded(at schema.Pointer, value, beside *jsontree.Node, field string, has func(c *candidate) *jsontree.Node) {
	kept := Kept{Difference: newDifference(at.String(), nil, value), Beside: field + ": " + string(compactJSON(beside))}
	outcome := besideRule.OfPod
	switch p.findSetter(&kept, at, beside, has, func(*jsontree.Node) bool { return false }) {
	case ofSame:
		p.found = true
		return
	case ofItself:
		p.reportConflictAt(kept.Difference, "the template adds %s to the container %s, and cannot add %s beside that; fix the template", kept.Beside, p.merged.Get("name").Text(), excludedIn(at, value))
		return
	case ofTemplate:
		outcome = besideRule.OfTemplate
	}
	if outcome == Conflicts {
		p.reportConflictAt(kept.Difference, "%s adds %s to the container %s, so this template cannot add %s; change one of the templates", kept.Owner(), kept.Beside, p.merged.Get("name").Text(), excludedIn(at, value))
		return
	}
	p.kept = append(p.kept, kept)
}

// excludedIn returns a field of a container with its value.
func excludedIn(at schema.Pointer, value *jsontree.Node) string {
	return schema.Where(at[inContainer:].String()) + ": " + valueOf(value)
}

// keepUnit handles a value that is merged as a whole.
func (p *planner) keepUnit(there, value *jsontree.Node, f *schema.Field, at schema.Pointer) {
	switch {
	case f.Contains(there, value) && f.ContainsNoMore(there, value):
		p.found = true
		return
	case keepRule(at, there, value).OfTemplate == Joins && p.joinNames(there, value, at):
		return
	}
	p.keepValue(at, there, value, f.Schema, func(c *candidate) *jsontree.Node {
		return c.hasAt(p, at, func(object *jsontree.Node, name string) *jsontree.Node {
			if own := object.Get(name); own != nil && c.subject.hasSameEffect(f.Schema, there, own) {
				return own
			}
			return nil
		})
	})
}

// joinNames handles a list in one string, separated by commas. It adds the names that a value added by another template lacks,
// and reports whether no name is missing then.
func (p *planner) joinNames(there, value *jsontree.Node, at schema.Pointer) bool {
	known, all := splitNames(there.Text()), there.Text()
	var rest []string
	for _, name := range splitNames(value.Text()) {
		if !slices.Contains(known, name) {
			rest = append(rest, name)
		}
	}
	switch {
	case len(rest) == 0:
		p.found = true
	case there.IsNew():
		names := strings.Join(rest, ",")
		p.recordAddition(at, new(jsontree.Text(names)))
		p.journal.Change(there, jsontree.Text(strings.TrimPrefix(all+","+names, ",")))
	default:
		return false
	}
	return true
}

// checkListed finds volumes in a list for the cluster autoscaler that are not the template's to list: a template of the namespace
// decides about no volume that a template of the cluster brings.
func (p *planner) checkListed() {
	if p.t.Namespace == "" {
		return
	}
	own := p.fragment.At("metadata", "annotations", SafeToEvictLocalVolumes)
	there := splitNames(p.subject.annotation(SafeToEvictLocalVolumes).Text())
	for _, volume := range splitNames(own.Text()) {
		if slices.Contains(there, volume) {
			continue
		}
		for c := range p.owners.otherTemplates(p.t, true, func(t *loaded) bool { return t.Namespace == "" }) {
			if c.t.Namespace == "" && c.bringsVolume(volume) {
				p.reportConflict(schema.Pointer{}.Member("metadata").Member("annotations").Member(SafeToEvictLocalVolumes), p.subject.annotation(SafeToEvictLocalVolumes), own,
					"the template %s of the cluster brings the volume %s, so a template of the namespace may not list it as safe to evict; remove it from the list", c.t.Name, volume)
				break
			}
		}
	}
}

// keepItem handles an item of a list with keys.
func (p *planner) keepItem(there, value *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	p.keepValue(at, there, value, s.Elem, func(c *candidate) *jsontree.Node {
		return c.hasAt(p, at[:len(at)-1], func(object *jsontree.Node, name string) *jsontree.Node {
			items := object.Get(name).Items()
			i := s.Find(items, there)
			if i >= 0 && c.subject.hasSameEffect(s.Elem, there, &items[i]) {
				return &items[i]
			}
			return nil
		})
	})
}

// hasAt returns what a template renders in the object that has a place, as the function finds it. In a container, the object may
// be in the template's own container, or in what the template adds to those of the pod.
func (c *candidate) hasAt(p *planner, at schema.Pointer, has func(object *jsontree.Node, name string) *jsontree.Node) *jsontree.Node {
	name := at.Name(0)
	if p.merged == nil {
		return has(at.In(&c.fragment, 0), name)
	}
	for _, i := range c.appsOf(p.merged.Get("name").Text()) {
		for k := range c.apps[i].fragments {
			if its := has(at.In(&c.apps[i].fragments[k], inContainer), name); its != nil {
				return its
			}
		}
	}
	if own := c.ownContainer(p.merged); own != nil {
		return has(at.In(own, inContainer), name)
	}
	return nil
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
