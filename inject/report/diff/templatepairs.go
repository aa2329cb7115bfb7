// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Applied returns a set of templates after those of files were applied and others were deleted. A template
// takes the place of the one with the same name, in the same namespace or in the cluster. Without has the IDs
// of the deleted ones: NAME, or NAMESPACE/NAME. The notes are about templates that Pillion would not use.
func Applied(installed, files *templates.Set, without []string) (set *templates.Set, notes []string, err error) {
	var ids []string
	applied := map[string]*templates.Template{}
	for _, t := range files.Templates {
		applied[t.ID()] = t
	}
	var all []*templates.Template
	for _, t := range installed.Templates {
		ids = append(ids, t.ID())
		if applied[t.ID()] == nil && !slices.Contains(without, t.ID()) {
			all = append(all, t)
		}
	}
	for _, id := range without {
		switch closest := problem.Closest(id, ids); {
		case applied[id] != nil:
			return nil, nil, fmt.Errorf("the template %s is in the files, so --without cannot remove it", id)
		case slices.Contains(ids, id):
		case closest != "":
			return nil, nil, fmt.Errorf("there is no template %s; did you mean %s?", id, closest)
		default:
			return nil, nil, fmt.Errorf("there is no template %s to remove", id)
		}
	}
	// If a template of a namespace and one of the cluster have the same name, the set has the one of the cluster.
	joined, problems := templates.Join(&templates.Set{Templates: slices.Concat(all, files.Templates)})
	for i := range problems {
		p := &problems[i]
		notes = append(notes, fmt.Sprintf("Pillion would not use a template in %s: %s.", p.File, p.Message))
	}
	return joined, notes, nil
}

// pair is a template in both sets. One of them is nil if only the other set has it.
type pair struct{ from, to *templates.Template }

func (p pair) template() *templates.Template {
	if p.to != nil {
		return p.to
	}
	return p.from
}

// hasChanged reports whether the sets have different revisions of the template.
func (p pair) hasChanged() bool {
	return p.from == nil || p.to == nil || p.from.Revision != p.to.Revision
}

// pairTemplates returns the templates of both sets, in the order of the new one, followed by those that only the old
// one has.
func pairTemplates(from, to *templates.Set) (all []pair) {
	was := map[string]*templates.Template{}
	for _, t := range from.Templates {
		was[t.ID()] = t
	}
	for _, t := range to.Templates {
		all = append(all, pair{was[t.ID()], t})
		delete(was, t.ID())
	}
	for _, t := range from.Templates {
		if was[t.ID()] != nil {
			all = append(all, pair{t, nil})
		}
	}
	return all
}
