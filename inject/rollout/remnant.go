// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// A running pod keeps its containers. If a canary is deleted, or a new revision drops a container, no template brings
// this container any more. As long as it runs, the record of the pod must not say that the pod is current.

// findRemnants returns the containers of a running pod that an older revision of a template may have added, if the pod
// would get another record and its owner is unknown. If it is known, [filter.isLeftOver] finds them. If others change new pods,
// most such containers are theirs, and stay.
func (p *Planner) findRemnants(o *Pod, t *target, written managers) (all []Change, err error) {
	if p.Mutated || !t.stripped || !slices.ContainsFunc(o.Changes, p.forgetsRevision) {
		return nil, nil
	}
	apps, err := appContainers(t, written)
	if err != nil {
		return nil, err
	}
	for _, list := range containerLists() {
		for _, item := range listItems(ensureObject(o.doc, "spec"), list) {
			name, _ := item["name"].(string)
			if apps[list+"/"+name] || slices.ContainsFunc(p.templatesInUse(), func(t *templates.Template) bool { return t.Brings(name) }) {
				continue
			}
			from, err := json.Marshal(item)
			if err != nil {
				return nil, err
			}
			all = append(all, Change{Path: "/spec/" + list + "/" + jsontree.Escape(name), From: from, How: NewPod})
		}
	}
	return all, nil
}

// forgetsRevision reports whether a change removes the record of a revision that no template has any more, and so of containers
// that are unknown now.
func (p *Planner) forgetsRevision(c Change) bool {
	var revision string
	if c.How != Record || json.Unmarshal(c.From, &revision) != nil {
		return false
	}
	return !slices.ContainsFunc(p.templatesInUse(), func(t *templates.Template) bool { return t.Revision == revision })
}

// appContainers returns the containers that a pod without a known owner had before its injection, as list/name: those that its
// creator owns in managedFields, because the API server fills these in before it calls webhooks. If it owns none, all
// may be the app's.
func appContainers(t *target, written managers) (map[string]bool, error) {
	base, err := decodeObject(t.base)
	if err != nil {
		return nil, err
	}
	all, some := map[string]bool{}, map[string]bool{}
	created := written.createdContainers()
	for _, list := range containerLists() {
		for _, item := range listItems(ensureObject(base, "spec"), list) {
			name, _ := item["name"].(string)
			if all[list+"/"+name] = true; created[list+"/"+name] {
				some[list+"/"+name] = true
			}
		}
	}
	if len(some) > 0 {
		return some, nil
	}
	return all, nil
}
