// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// mergeContainer merges a container of the fragment into the pod's container of the same name, or inserts it into the pod's list if
// there is none. A container of that name in the other list is a conflict.
func (p *planner) mergeContainer(pod, fragment *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	name := fragment.Get("name").Text()
	for _, list := range schema.ContainerLists() {
		if !p.subject.hasContainer(name) {
			break
		}
		items := p.subject.pod.At("spec", list).Items()
		if found := s.Find(items, fragment); found >= 0 {
			where := p.subject.beside.Member("spec").Member(list).Item(items, found)
			if at.Name(0) != list {
				if other := p.findContributor(func(c *candidate) bool { return c.t.Brings(name) }); other != "" {
					p.reportConflict(where, &items[found], fragment, "the template %s adds a container named %s to %s; rename it in one of the templates", other, name, list)
					return
				}
				p.reportConflict(where, &items[found], fragment, "the pod has a container named %s in %s, but the template adds it to another list; rename the container in the pod", name, list)
				return
			}
			p.mergeKnownContainer(&items[found], fragment, s, where)
			return
		}
	}
	p.checkContainer(at.Name(0), nil, fragment, at.Member("-"))
	p.checkMerged(fragment, fragment, at.Member("-"))
	p.checkAppArmor(fragment)
	p.insertItem(pod, p.insertIndex(pod.Items(), fragment, at.Name(0)), *fragment, at)
	p.subject.presentNames[p.subject.brings[name]] = true
}

// mergeKnownContainer merges a container of the fragment into the pod's container of the same name, if that is the template's.
func (p *planner) mergeKnownContainer(existing, fragment *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	other := p.owners.bringerOf(existing, p.t)
	if other != nil && !p.subject.hasSameEffect(s.Elem, other.ownContainer(existing), fragment) {
		p.reportConflict(at, existing, fragment, "the template %s adds a different container named %s; rename it in one of the templates", other.t.Name, fragment.Get("name").Text())
		return
	}
	if s.Elem.Contains(p.subject.withHostPorts(existing), fragment) && !slices.Contains(p.differedBefore, fragment.Get("name").Text()) {
		p.checkProtected(existing, fragment, at)
		return
	}
	if !p.wasMarked {
		p.reportConflict(at, existing, fragment, "%s", p.notInjected(existing, fragment, s.Elem))
		return
	}
	if there, ours := existing.Get("restartPolicy"), fragment.Get("restartPolicy"); there != nil && ours != nil && !ours.SameText(there) {
		p.reportConflict(at.Member("restartPolicy"), there, ours, "the pod's container %s is not a native sidecar; set its restartPolicy to Always", fragment.Get("name").Text())
	}
	if !p.checkContainer(at.Name(1), existing, fragment, at) {
		return
	}
	if existing.IsNew() {
		p.journal.Own(existing) // never add to memory that is shared with the template
	}
	p.merged = existing
	p.mergeObject(existing, fragment, s.Elem, at)
	p.merged = nil
	p.checkProtected(existing, fragment, at)
	p.checkMerged(existing, fragment, at)
}

// checkProtected reports a conflict for each protected field that differs in a container of the user's that the template
// completes. Without the conflict, the validating webhook would deny the pod because of these fields.
func (p *planner) checkProtected(existing, fragment *jsontree.Node, at schema.Pointer) {
	if p.wasInjected || existing.Added() {
		return
	}
	name := fragment.Get("name").Text()
	for _, d := range p.subject.alteredIn(p.t, existing, fragment, at) {
		do := "remove it"
		if d.Template != "null" {
			do = "make it " + Brief(d.Template)
		}
		p.reportConflictAt(d, "the pod's container %s has %s at %s, which the template protects; %s, or remove the container", name, Brief(d.Pod), schema.Where(d.Path), do)
	}
}

// notInjected returns what to do about a container that differs from the template, in a pod without
// a record of the injection. A copy of an injected pod may have lost the record: by default, kubectl debug --copy-to
// drops annotations and labels.
func (p *planner) notInjected(existing, fragment *jsontree.Node, s *schema.Schema) string {
	name, image := fragment.Get("name").Text(), existing.Get("image")
	differs, which := "differs from the template", ""
	if names := lackingFields(existing, fragment, s); len(names) > 0 { // none if the container lacks only what other templates add
		differs += " in " + someOf(names, min(len(names), 4))
		which = ", which " + differs
	}
	switch {
	case image != nil && image.SameText(fragment.Get("image")):
		return fmt.Sprintf("the container %s %s, and the pod has no record of its injection; in a copy of a pod, keep the annotations (kubectl debug --keep-annotations), or remove the container", name, differs)
	case slices.Contains(p.t.Spec.Validate.Protect, templates.ProtectAll):
		return fmt.Sprintf("the pod has its own container named %s; rename it or remove it", name)
	}
	return fmt.Sprintf("the pod has its own container named %s%s; if the template should add the missing fields, set the annotation %s: \"true\"", name, which, p.t.customize)
}

// lackingFields returns the names of the fields in which an object lacks something of the fragment.
func lackingFields(existing, fragment *jsontree.Node, s *schema.Schema) (names []string) {
	members := fragment.Members()
	for i := range members {
		if !s.Contains(existing, new(jsontree.Members(members[i]))) {
			names = append(names, members[i].Name())
		}
	}
	return names
}

// checkContainer finds conflicts that would make the API server reject the pod, or break it
// silently, if fragment were added to existing, a container in list. If existing is nil, the
// container is new.
func (p *planner) checkContainer(list string, existing, fragment *jsontree.Node, at schema.Pointer) (addable bool) {
	addable = p.checkMounts(existing, fragment, at)
	p.checkPorts(list, existing, fragment, at)
	return addable
}

// checkClashes reports a conflict if two entries of the template's forEachContainer add different items with the same key to one
// container.
func (p *planner) checkClashes(fragments []jsontree.Node, container *schema.Schema, at schema.Pointer) {
	for i := range fragments {
		members := fragments[i].Members()
		for j := range members {
			list := container.At(members[j].Name())
			for k := range fragments[:i] {
				p.checkClash(list, fragments[k].Get(members[j].Name()), &members[j], at.Member(members[j].Name()))
			}
		}
	}
}

func (p *planner) checkClash(list *schema.Field, a, b *jsontree.Node, at schema.Pointer) {
	if list.Shape != schema.KeyedList {
		return
	}
	items := b.Items()
	for i := range items {
		if found := list.Find(a.Items(), &items[i]); found >= 0 && !list.Elem.Equal(&a.Items()[found], &items[i]) {
			p.reportConflict(at, nil, &items[i], "the template adds two different things: %s and %s; fix the template", &a.Items()[found], &items[i])
		}
	}
}

// checkAppArmor reports a conflict if the pod has an AppArmor annotation for a container that the template adds. Without the template,
// the API server would reject the pod, because the pod has no such container.
func (p *planner) checkAppArmor(container *jsontree.Node) {
	if p.subject.appArmorOf(container) == nil {
		return
	}
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Get("name").Text()
	at := p.subject.beside.Member("metadata").Member("annotations").Member(key)
	p.reportConflict(at, p.subject.annotation(key), nil, "the pod's annotation %s changes a container that the template adds; remove the annotation", problem.Cut(key, maxValue))
}

// eachAppContainer merges what the template adds to each app container. It runs before containers
// are inserted, so their indexes are still the original ones.
func (p *planner) eachAppContainer() {
	elem := p.subject.schema.At("spec").At("containers").Elem
	for i := range p.apps {
		if p.subject.request.isGone() {
			return
		}
		app := &p.apps[i]
		existing := p.subject.pod.At("spec", app.list).Items()
		if own := p.subject.sameName(p.fragment, &existing[app.index]); own != nil && !p.wasMarked &&
			p.subject.schema.At("spec").At(app.list).Find(existing, own) == app.index && !elem.Contains(&existing[app.index], own) {
			p.differedBefore = append(p.differedBefore, own.Get("name").Text())
		}
		at := p.subject.at.Member("spec").Member(app.list).Member(app.token)
		p.checkVariables(app, &existing[app.index], at)
		before := len(p.conflicts)
		if p.checkClashes(app.fragments, elem, at); len(p.conflicts) > before {
			continue
		}
		if existing[app.index].IsNew() {
			p.journal.Own(&existing[app.index])
		}
		p.merged, p.inApp, p.inTenantContainer = &existing[app.index], true, p.subject.request.tenantContainers[existing[app.index].Get("name").Text()] != ""
		for j := range app.fragments {
			if p.checkContainer(app.list, &existing[app.index], &app.fragments[j], at) {
				p.mergeObject(&existing[app.index], &app.fragments[j], elem, at)
				p.checkMerged(&existing[app.index], &app.fragments[j], at)
			}
		}
		p.merged, p.inApp, p.inTenantContainer = nil, false, false
		p.noteVariables(&existing[app.index])
	}
}

// A template recognizes the containers that its ${forEach} makes by the constant part of their names.
// If the list becomes shorter, for example because an annotation changed, the containers that were made
// before stay in the pod and still belong to the template.

// checkForeign reports a conflict for each container that has a name of the form of the template's generated names, but that the
// template did not make.
func (p *planner) checkForeign() {
	if p.wasMarked {
		return
	}
	for _, own := range p.t.Containers {
		if !fragment.IsGenerated(own) {
			continue
		}
		for _, list := range schema.ContainerLists() {
			items := p.subject.pod.At("spec", list).Items()
			for i := range items {
				name := items[i].Get("name").Text()
				if !fragment.IsNamed(own, name) || p.subject.sameName(p.fragment, &items[i]) != nil {
					continue
				}
				at := p.subject.beside.Member("spec").Member(list).Item(items, i)
				if other := p.findContributor(func(c *candidate) bool { return c.t.Brings(name) }); other != "" {
					p.reportConflict(at, &items[i], nil, "the template %s adds a container named %s, and names of the form %s are this template's; rename it in one of the templates", other, name, own)
				} else {
					p.reportConflict(at, &items[i], nil, "the pod has its own container named %s, but names of the form %s are the template's; rename the container in the pod", name, own)
				}
			}
		}
	}
}
