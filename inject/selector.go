// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// A selector with NotIn or DoesNotExist may no longer match a pod after a template has added a label to it. Then the workload does
// not find its pods and creates more without end. If the label is in the pod template, the API server rejects the workload. A pod
// does not contain the selector, so the webhook for pods cannot find this out. The commands can, see [Decision.LeavesSelector].

// labelSet returns the pod's labels, with what was added to them.
func (s *subject) labelSet() labels.Set {
	set := labels.Set{}
	members := s.pod.At("metadata", "labels").Members()
	for i := range members {
		set[members[i].Name()] = members[i].Text()
	}
	return set
}

// ownerSelector returns the selector of the pod's workload. It returns nil if the selector is not known or does not match the pod
// already, or if the template has no labels.
func (p *planner) ownerSelector() labels.Selector {
	if p.subject.request.owner.Selector == "" || len(p.fragment.At("metadata", "labels").Members()) == 0 {
		return nil
	}
	selector, err := labels.Parse(p.subject.request.owner.Selector)
	if err != nil || !selector.Matches(p.subject.labelSet()) {
		return nil
	}
	return selector
}

// checkOwnerSelector reports a conflict if the selector, which matched the pod before, does not match it with the template's labels.
func (p *planner) checkOwnerSelector(selector labels.Selector) {
	if selector == nil {
		return
	}
	requirements, _ := selector.Requirements()
	set := p.wantedLabels()
	for _, r := range requirements {
		if r.Matches(set) {
			continue
		}
		p.leavesSelector = true
		owner, value := p.subject.request.owner, p.fragment.At("metadata", "labels", r.Key())
		p.reportConflict(schema.Pointer{}.Member("metadata").Member("labels").Member(r.Key()), nil, value,
			"its label %s=%s takes the pods out of the selector of the %s (%s), which then does not find them and creates more without end; "+
				"change the selector or the template, or leave the template out with the annotation %s: -%s. The webhook does not see the selector, so it adds the label",
			r.Key(), value.Text(), owner.Kind, owner.Selector, AnnotationTemplates, p.t.Name)
		return
	}
}

// LeavesSelector reports whether the decision is a conflict because a label of the template takes the pods out of the selector of
// their workload. The webhook for pods does not see the selector, so the workload then creates pods without end.
func (d *Decision) LeavesSelector() bool { return d.leavesSelector && d.Code == CodeConflict }

// wantedLabels returns the pod's labels with those of the template. If another template set another value, the value of this template
// counts: that template may have set it only because this one was left out, and then this one would be added after all.
func (p *planner) wantedLabels() labels.Set {
	set := p.subject.labelSet()
	members := p.fragment.At("metadata", "labels").Members()
	for i := range members {
		path := "/metadata/labels/" + jsontree.Escape(members[i].Name())
		if slices.ContainsFunc(p.kept, func(k Kept) bool { return k.By != "" && k.Path == path }) {
			set[members[i].Name()] = members[i].Text()
		}
	}
	return set
}
