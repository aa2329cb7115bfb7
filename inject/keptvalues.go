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

// keepValue handles a place at which the pod has the value there, and this template the value fragment. It records that the place is
// there already, a kept place, or a conflict. The function has returns what a template renders at the place if that equals there, or
// nil; so it finds the template that set the value.
//
// A value that has more than this template's value is enough if the pod's author wrote it. If another template set it, the two
// templates want different things.
func (p *planner) keepValue(at schema.Pointer, there, fragment *jsontree.Node, in *schema.Schema, has func(c *candidate) *jsontree.Node) {
	enough := in.Contains(there, fragment) && (in.GoType != schema.VolumeMountType() || !seesOtherFiles(there, fragment))
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

// valueSetter is who set a value of the pod that differs from a template's.
type valueSetter int

const (
	ofPod      valueSetter = iota // the pod's author, or a template that counts as the author
	ofTemplate                    // another template, beside which this template would be incomplete
	ofItself                      // another entry of this template
	ofSame                        // a template with the same value, or this template, which has computed another value since
)

// findSetter finds out who set the value there, and writes the name of the template into kept. The function has is that of
// keepValue. Same reports whether what another template renders has the same effect as what this template renders.
//
// For a template of the cluster, a template of the namespace counts as the pod's author. If the pod records this template, the
// template was complete when it was injected. Then a later template with the value did not set it, but found it in the pod.
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
	kept.By = p.tenantOfMerged()
	return ofPod
}

// mayHave reports whether a template can set something at a place of the container that is merged, or of the pod if none is merged. It
// needs no rendering, so it saves most searches.
func (p *planner) mayHave(t *loaded, at schema.Pointer) bool {
	if p.merged == nil {
		return t.PodFragment().Has(at.Name(len(at) - 1))
	}
	field := at.Name(len(at) - 1 - inContainer)
	return t.Brings(p.merged.Get("name").Text()) || slices.ContainsFunc(t.each, func(each templates.EachFragment) bool { return each.Add.Has(field) })
}

// tenantOfMerged returns the template of the namespace that added the container that is merged, or "".
func (p *planner) tenantOfMerged() string {
	return p.subject.request.tenantContainers[p.merged.Get("name").Text()]
}

// placeOf returns words for a place. They contain names instead of indexes, because injection moves containers and a second run
// must give the same message.
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

// valueOf returns a value as JSON for a message. Of an environment variable with a value, it returns that value.
func valueOf(n *jsontree.Node) string {
	if value := n.Get("value"); value != nil {
		n = value
	}
	return problem.Cut(string(compactJSON(n)), maxValue)
}

// keepExcluded handles a value of the template that the pod lacks, and that the API server would reject because of another field.
// Field is the path of that other field, and beside its value. It records a kept place or a conflict. The function has returns what a
// template renders for the other field if that equals beside, or nil.
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

// excludedIn returns a field of a container with its value, for example "securityContext.runAsNonRoot: true".
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
			if own := f.Effective(object, object.Get(name)); own != nil && c.subject.hasSameEffect(f.Schema, there, own) {
				return own
			}
			return nil
		})
	})
}

// joinNames handles a string with names that are separated by commas. It reports whether the pod's string has all names of the
// template's afterwards. If another template added the string, joinNames appends the missing names to it.
func (p *planner) joinNames(there, value *jsontree.Node, at schema.Pointer) bool {
	known, all := SplitNames(there.Text()), there.Text()
	var rest []string
	for _, name := range SplitNames(value.Text()) {
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

// checkListed reports a conflict if a template of the namespace lists a volume that a template of the cluster brings as safe to evict.
// Only the template of the cluster decides about its volumes.
func (p *planner) checkListed() {
	if p.t.Namespace == "" {
		return
	}
	own := p.fragment.At("metadata", "annotations", SafeToEvictLocalVolumes)
	there := SplitNames(p.subject.annotation(SafeToEvictLocalVolumes).Text())
	for _, volume := range SplitNames(own.Text()) {
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

// hasAt returns what a template renders at a place, or nil. The function has gets the object that contains the place and the name of
// the place in it, and returns the value or nil. While a container is merged, that object is searched in what the template adds to
// containers with this name, and then in the template's own container.
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

// appsOf returns the indexes in c.apps of the app containers with that name.
func (c *candidate) appsOf(name string) []int {
	if c.appsByName == nil {
		c.appsByName = map[string][]int{}
		for i := range c.apps {
			c.appsByName[c.apps[i].name] = append(c.appsByName[c.apps[i].name], i)
		}
	}
	return c.appsByName[name]
}
