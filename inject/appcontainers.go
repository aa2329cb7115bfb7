// SPDX-License-Identifier: Apache-2.0

package inject

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
