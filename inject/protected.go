// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/drift"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// noContainer reports whether the pod has no container with a name of the template's. A container that the
// pod's author wrote for the template to complete does not count.
func (c *candidate) noContainer() bool {
	return c.subject.annotation(c.t.customize).IsText("true") || !slices.ContainsFunc(c.t.Containers, c.subject.hasContainerLike)
}

// isAbsent reports whether nothing in the pod shows that the template was ever injected. The record
// of the injection is no proof: it may be forged, or copied from another pod. The record of another
// template is no proof either.
func (p *planner) isAbsent(noContainer bool) bool {
	return noContainer && p.moreThanRecord() && (!p.wasInjected || !p.found)
}

// moreThanRecord reports whether something besides the record of the injection is missing.
func (p *planner) moreThanRecord() bool {
	alone := JSON("") // the record as the only addition, like in added if the pod has no annotations
	annotations := p.fragment.At("metadata", "annotations")
	if members := annotations.Members(); !slices.ContainsFunc(members, func(m jsontree.Node) bool { return !p.t.isRecord(m.Name()) }) {
		alone = JSON(annotations.String())
	}
	return slices.ContainsFunc(p.added, func(at Difference) bool {
		key, ok := strings.CutPrefix(at.Path, "/metadata/annotations/")
		return at.Template != alone && (!ok || !p.t.isRecord(schema.Unescape(key)))
	})
}

// alteredFields returns the protected fields of the template's containers that differ from the template.
// It returns only the first place in each field. If a container differs, the function again, unless it is nil, compares the
// container once more with the knowledge of other templates, and its result counts.
func alteredFields(s *subject, t *loaded, fragment *jsontree.Node, again func(list string, found int, own *jsontree.Node) []Difference) []Difference {
	if len(t.protect) == 0 {
		return nil
	}
	var all []Difference
	for _, list := range schema.ContainerLists() {
		own, existing := fragment.At("spec", list).Items(), s.pod.At("spec", list).Items()
		if len(existing) == 0 {
			continue
		}
		containers := s.schema.At("spec").At(list)
		for i := range own {
			if found := containers.Find(existing, &own[i]); found >= 0 { // otherwise it is reported as missing
				differs := s.alteredIn(t, &existing[found], &own[i], s.beside.Member("spec").Member(list).Item(existing, found))
				if len(differs) > 0 && again != nil {
					differs = again(list, found, &own[i])
				}
				all = append(all, differs...)
			}
		}
	}
	return all
}

// alteredIn is alteredFields for one container. Besides are what other templates add to the container.
func (s *subject) alteredIn(t *loaded, existing, own *jsontree.Node, at schema.Pointer, besides ...*jsontree.Node) []Difference {
	var all []Difference
	existing = s.withAppArmor(existing)
	add := func(d *drift.Difference) {
		if d != nil && !slices.ContainsFunc(all, func(p Difference) bool { return p.Path == d.At }) {
			all = append(all, newDifference(d.At, d.Pod, d.Fragment))
		}
	}
	container := drift.Comparison{Pod: &s.compared, At: at, Field: s.schema.At("spec").At("containers").Elem.AsField(), Besides: besides}
	for _, path := range t.protect {
		if path[0] == templates.ProtectAll {
			container.FindEachProtected(t.Template, existing, own, add)
		} else {
			add(container.FindAtPath(existing, own, path))
		}
	}
	return all
}

// sameVolume reports whether the pod's volume is the template's, apart from Kubernetes' defaults and from fields that the API server
// may drop. The mutating webhook sees these fields, and the validating webhook does not, but both must get the same result.
func (s *subject) sameVolume(pod, fragment *jsontree.Node, in *schema.Schema, at schema.Pointer) bool {
	return drift.Comparison{Pod: &s.compared, At: at, Field: in.AsField(), Stored: true}.FindDifference(s.withSource(pod), s.withSource(fragment)) == nil
}

// withSource returns a volume with a source. If it has none, it gets the source that Kubernetes
// sets by default.
func (s *subject) withSource(volume *jsontree.Node) *jsontree.Node {
	members := volume.Members()
	if slices.ContainsFunc(members, func(m jsontree.Node) bool { return m.Name() != "name" && m.Kind() != jsontree.Null }) {
		return volume
	}
	return new(s.nodes.With(volume, "emptyDir", jsontree.Members()))
}
