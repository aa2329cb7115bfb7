// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// view is one pod with the decisions about it.
type view struct {
	pod       *pod
	scope     *Scope
	result    *inject.Result
	causes    explain.Causes
	notCalled string // why the API server would not call Pillion today; "" if it would
}

// whyNotCurrent returns why a template is not current in the pod.
func (v *view) whyNotCurrent(d *inject.Decision, by string, state explain.State) explain.Reason {
	r := explain.Reason{Template: d.Template, State: state, Pods: 1, Example: v.pod.Metadata.Name}
	if !d.Code.Succeeded() {
		r.Code = d.Code
	}
	r.Why = v.causes.Of(d, by, state)
	return r
}

// isNewPodRight reports whether a new pod like this one would be right for a template. A conflict does not count if the pod is
// outdated, because it may be with values of the older revision, which a new pod does not have.
func (v *view) isNewPodRight(d *inject.Decision, state explain.State) bool {
	return !d.Code.Wanted() || state == explain.NotWanted || v.notCalled == "" && (!d.Code.Failed() || state == explain.Outdated && d.Code == inject.CodeConflict)
}

// findMistakes returns the unknown values in the pod's labels and annotations, the templates that it names and does not get
// because they are not for it, and, in notes, the unknown values of its namespace.
func (v *view) findMistakes() (all []Mistake, notes []string) {
	for _, f := range v.result.Check() {
		switch {
		case f.Code != inject.CodeUnknownTemplate && f.Code != inject.CodeUnknownParameter, v.scope.Incomplete: // an unknown template may have the name
		case f.Path == "":
			notes = append(notes, fmt.Sprintf("Namespace %s: %s", v.scope.Namespace.Name, strings.Replace(f.Message, "the namespace's", "the", 1)))
		default:
			all = append(all, Mistake{Template: f.Template, Code: f.Code, Why: f.Message, Pods: 1, Example: v.pod.Metadata.Name, Denied: f.Mode == v1alpha1.Deny})
		}
	}
	for i := range v.result.Decisions {
		if d := &v.result.Decisions[i]; d.Unmet() && !d.Code.Wanted() {
			all = append(all, Mistake{Template: d.Template, Code: d.Code, Why: d.UnmetSentence(), Pods: 1, Example: v.pod.Metadata.Name})
		}
	}
	value, labelled := v.pod.Metadata.Labels[inject.LabelInject]
	_, decided := v.scope.Namespace.Labels[inject.LabelInject]
	if !decided && labelled && value != inject.Enabled && value != inject.Disabled { // the engine ignores this pod
		all = append(all, Mistake{Code: inject.CodeUnknownParameter, Why: inject.WrongPodLabel(strconv.Quote(value)), Pods: 1, Example: v.pod.Metadata.Name})
	}
	return all, notes
}

// removedReason returns the reason for a template whose injected values are no longer there.
func (v *view) removedReason(template string) explain.Reason {
	return explain.Reason{
		Template: template, State: explain.Outdated, Pods: 1, Example: v.pod.Metadata.Name,
		Why: "it was injected, but the template no longer exists",
	}
}
