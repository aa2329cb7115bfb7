// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// planAdditions compares the fragment with the pod, adds what is missing to the pod's tree, and completes the decision. A template is
// added completely or not at all: if there is a conflict, the journal undoes all additions. It reports whether anything stays
// added, which never is the case for a final pod.
func (c *candidate) planAdditions(o *owners, journal *jsontree.Journal) (added bool) {
	if err := o.renderApps(c); err != nil {
		c.decision.Code, c.decision.Message = CodeRenderFailed, err.Error()
		return false
	}
	noContainer := (c.subject.request.alone || c.subject.request.detail) && c.noContainer() // before anything is added
	p := &planner{
		subject: c.subject, t: c.t, fragment: &c.fragment, apps: c.apps, placed: &c.placed, owners: o,
		journal: journal, wasMarked: c.subject.isMarked(c.t), wasInjected: c.subject.annotation(c.t.injected) != nil,
	}
	selector := p.ownerSelector()
	p.checkForeign()
	p.checkListed()
	p.eachAppContainer()
	p.mergeObject(c.subject.pod, &c.fragment, c.subject.schema, c.subject.at)
	if p.additions+p.leftToWebhook > 0 {
		p.checkAnnotations()
		p.checkClaims()
		p.checkOwnerSelector(selector)
		p.checkStarts()
	}
	c.decideByPlan(p, noContainer)
	delete(c.subject.marks, c.t) // its annotation may have been added
	delete(c.subject.marks, c.t.base)
	switch {
	case c.decision.Code == CodeInjected && c.subject.isOfOtherTier(c.t):
		c.decision.Code = CodePresent
	case c.decision.Code == CodeInjected && !c.subject.request.alone, c.decision.Code == CodePresent && p.leftToWebhook > 0:
		p.journal.Keep()
		return true
	}
	if p.journal.Undo(); p.additions+p.leftToWebhook > 0 {
		c.subject.presentNames = c.subject.presentNames[:0]
	}
	return false
}

// decideByPlan completes the decision from what the planner has found. NoContainer reports whether the pod had no container of the
// template before.
func (c *candidate) decideByPlan(p *planner, noContainer bool) {
	switch {
	case p.failed != nil:
		c.decision.Code, c.decision.Message, c.decision.Obstacles = CodeRenderFailed, p.failed.Error(), p.lacks
	case len(p.conflicts) > 0:
		c.decision.Code, c.decision.Message, c.decision.Obstacles = CodeConflict, joinMessages(p.conflicts), p.conflicts
	default:
		c.recordPassed(CodeRenderFailed, "every expression gives a valid value")
		c.recordPassed(CodeConflict, "nothing in the pod conflicts with it")
		c.decision.Kept, c.decision.Added, c.decision.Altered = p.kept, p.added, c.altered
		c.decision.Code = CodePresent
		c.decision.Notes = append(c.decision.Notes, p.notes...)
		c.noteWhere(p.owners)
		c.notePorts()
	}
	says := c.subject.annotation(c.t.injected)
	other := says != nil && !says.IsText(c.t.Revision)
	if other && c.subject.request.alone {
		c.decision.recordedRevision = says.String()
	}
	c.decision.computed = c.t.Computed
	if c.decision.Code == CodePresent && p.additions > 0 {
		c.recordPassed(CodePresent, "the pod lacks a part of it")
		c.decision.Code, c.decision.Absent, c.decision.recorded = CodeInjected, p.isAbsent(noContainer), p.wasInjected
		if other {
			c.decision.Notes = append(c.decision.Notes, fmt.Sprintf("the pod keeps its own annotation %s, but revision %s was injected", c.t.injected, c.t.Revision))
		}
	}
	c.decision.outside, c.decision.leavesSelector = p.outside, p.leavesSelector
}
