// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// The API server runs policies in any order. A template is rejected if another one adds something
// different to the same place. There is a note if the order changes what its expressions see.

// claimsOf returns the claims of another template of the set.
func claimsOf(set *templates.Set, t *templates.Template) []claim {
	m := newMutation(&builder{set: set, t: t})
	var all []claim
	for _, a := range slices.Concat(m.appAdditions("containers"), m.podAdditions()) { // other lists get the same
		if a.path != "" {
			value, what := a.value, a.what
			if strings.Contains(value, "variables.") || strings.HasPrefix(what, "the container") {
				value += t.Name // each policy has its own
			}
			if strings.Contains(what, "variables.") {
				what += " of " + t.Name // a computed path, which is the other's only if the pod makes it so
			}
			all = append(all, claim{what, value, a.path})
		}
	}
	_, ports := m.portConditions()
	return append(all, ports...)
}

// reportCollisions finds templates that add two different things to one place.
func (m *mutation) reportCollisions() {
	for _, t := range m.set.Templates {
		if t == m.t {
			continue
		}
		theirs := map[string]claim{}
		for _, c := range claimsOf(m.set, t) {
			theirs[c.what] = c
		}
		for _, c := range claimsOf(m.set, m.t) {
			if other, ok := theirs[c.what]; ok && other.value != c.value {
				m.addProblem(c.path, "the template %s adds %s too, and the API server runs policies in any order", t.Name, c.what)
			}
		}
	}
}

// addedParts returns the parts of a pod to which a template adds something that expressions can see, by
// their first two fields. Expressions do not see its containers.
func addedParts(set *templates.Set, t *templates.Template) []string {
	parts := map[string]bool{}
	for _, c := range claimsOf(set, t) {
		if part, _, _ := strings.Cut(c.what, " "); strings.Contains(part, ".") {
			part, _, _ = strings.Cut(part, "[")
			parts[strings.Join(strings.SplitN(part, ".", 3)[:2], ".")] = true
		}
	}
	for _, e := range t.EachFragments() {
		parts["spec.containers"] = true
		if e.InitContainers {
			parts["spec.initContainers"] = true
		}
	}
	return slices.Sorted(maps.Keys(parts))
}
