// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// noContainer reports whether none of the template's containers is in the pod, unless it
// is the pod's own.
func (c *candidate) noContainer() bool {
	return c.subject.annotation(c.t.customize).IsText("true") || !slices.ContainsFunc(c.t.Containers, c.subject.has)
}

// absent reports whether nothing in the pod shows that the template was ever injected.
// The record of the injection alone does not: it may be forged, or copied from another
// pod. Nor does the record of another template.
func (p *planner) absent(noContainer bool) bool {
	return noContainer && p.moreThanRecord() && (!p.wasInjected || !p.found)
}

// moreThanRecord reports whether something besides the record of the injection is missing.
func (p *planner) moreThanRecord() bool {
	record := annotationPath(p.t.injected)
	alone := fmt.Sprintf("{%q:%q}", p.t.injected, p.t.Revision) // if the pod has no annotations
	return slices.ContainsFunc(p.added, func(at Place) bool { return at.Path != record && at.Template != alone })
}

// altered are the protected fields of the template's containers that differ
// from the template, the first place of each.
func altered(s *subject, t *loaded, fragment *tree.Node) []Place {
	if len(t.protect) == 0 {
		return nil
	}
	var all []Place
	for _, list := range containerLists() {
		own, existing := fragment.At("spec", list).Items(), s.pod.At("spec", list).Items()
		if len(existing) == 0 {
			continue
		}
		containers := s.schema.At("spec").At(list)
		for i := range own {
			if found := containers.Find(existing, &own[i]); found >= 0 { // else it is missing, which says it all
				all = append(all, alteredIn(s, t, &existing[found], &own[i], s.beside.Member("spec").Member(list).Item(existing, found))...)
			}
		}
	}
	return all
}

// alteredIn is altered of one container.
func alteredIn(s *subject, t *loaded, existing, own *tree.Node, at schema.Pointer) []Place {
	var all []Place
	add := func(d *difference) {
		if d != nil && !slices.ContainsFunc(all, func(p Place) bool { return p.Path == d.at }) {
			all = append(all, newPlace(d.at, d.pod, d.fragment))
		}
	}
	container := comparison{subject: s, at: at, f: s.schema.At("spec").At("containers").Elem.AsField()}
	for _, path := range t.protect {
		if path[0] == templates.ProtectAll {
			container.everything(t, existing, own, add)
		} else {
			add(container.within(existing, own, path))
		}
	}
	return all
}

// sameVolume says whether the pod's volume is the template's: nothing less, and
// nothing more than Kubernetes' defaults. The webhooks must agree about it, the first of
// which sees the fields that the API server drops before it calls the second.
func (s *subject) sameVolume(pod, fragment *tree.Node, in *schema.Schema, at schema.Pointer) bool {
	return comparison{subject: s, at: at, f: in.AsField(), stored: true}.find(s.withSource(pod), s.withSource(fragment)) == nil
}

// withSource is a volume with the source that Kubernetes gives to one that has none.
func (s *subject) withSource(volume *tree.Node) *tree.Node {
	members := volume.Members()
	if slices.ContainsFunc(members, func(m tree.Node) bool { return m.Name() != "name" && m.Kind() != tree.Null }) {
		return volume
	}
	return new(s.nodes.With(volume, "emptyDir", tree.Members()))
}
