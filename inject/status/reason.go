// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
)

// view is one pod with the decisions about it.
type view struct {
	pod       *pod
	scope     *Scope
	result    *inject.Result
	injected  bool   // some template was injected, according to the pod
	notCalled string // why the API server would not call Pillion today; "" if it would
}

// reason returns why a template is not current in the pod.
func (v *view) reason(d *inject.Decision, by string, state explain.State) explain.Reason {
	r := explain.Reason{Template: d.Template, State: state, Pods: 1, Example: v.pod.Metadata.Name}
	if !d.Code.Succeeded() {
		r.Code = d.Code
	}
	switch state {
	case explain.Outdated:
		r.Why = v.outdated(d, by)
	case explain.Missing:
		r.Why = v.missing(d, by)
	default:
		r.Why = v.altered(d)
	}
	return r
}

// right reports whether a new pod would be right for this template. A conflict of an outdated
// template is with values of the older revision, so it does not count.
func (v *view) right(d *inject.Decision, state explain.State) bool {
	return !d.Code.Wanted() || state == explain.NotWanted || v.notCalled == "" && (!d.Code.Failed() || state == explain.Outdated && d.Code == inject.CodeConflict)
}

// mistakes returns the unknown values in the pod's labels and annotations, and, in notes,
// those in its namespace's.
func (v *view) mistakes() (all []Mistake, notes []string) {
	for _, f := range v.result.Check() {
		switch {
		case f.Code != inject.CodeUnknownTemplate && f.Code != inject.CodeUnknownParameter:
		case f.Path == "":
			notes = append(notes, fmt.Sprintf("Of the namespace %s %s", v.scope.Namespace.Name, strings.Replace(f.Message, "the namespace's", "the", 1)))
		default:
			all = append(all, Mistake{Template: f.Template, Code: f.Code, Why: f.Message, Pods: 1, Example: v.pod.Metadata.Name, Denied: f.Mode == templates.Deny})
		}
	}
	value, labelled := v.pod.Metadata.Labels[inject.LabelInject]
	_, decided := v.scope.Namespace.Labels[inject.LabelInject]
	if !decided && labelled && value != inject.Enabled && value != inject.Disabled { // the engine ignores this pod
		all = append(all, Mistake{Code: inject.CodeUnknownParameter, Why: inject.WrongPodLabel(strconv.Quote(value)), Pods: 1, Example: v.pod.Metadata.Name})
	}
	return all, notes
}

// removed returns the reason for a template whose injected values are no longer there.
func (v *view) removed(template string) explain.Reason {
	return explain.Reason{
		Template: template, State: explain.Outdated, Pods: 1, Example: v.pod.Metadata.Name,
		Why: "it was injected, but the template no longer exists",
	}
}

func (v *view) outdated(d *inject.Decision, by string) string {
	why := "it was injected by revision " + inject.Cut(by, 20) + " of the template"
	if by == d.Revision {
		why = "it was injected"
	}
	switch {
	case !d.Code.Wanted():
		return fmt.Sprintf("%s, but a new pod like it would not get it: %s", why, d.Sentence())
	case d.Code.Failed() && d.Code != inject.CodeConflict: // a new pod has no older values
		return fmt.Sprintf("%s, but a new pod like it could not get it: %s", why, d.Sentence())
	case v.notCalled != "":
		return fmt.Sprintf("%s, but the API server would not call Pillion for a new pod: %s", why, v.notCalled)
	}
	return why
}

func (v *view) missing(d *inject.Decision, by string) string {
	created := v.pod.Metadata.CreationTimestamp
	switch {
	case d.Code.Failed():
		return d.Sentence()
	case v.notCalled != "":
		return "the API server would not call Pillion for it: " + v.notCalled
	case by != "":
		return "it was injected according to the pod's annotation, but its containers are missing; find out what removes them"
	case created.IsZero():
	case created.Time.Before(v.scope.Installed):
		return "the pod is older than Pillion's webhook"
	case created.Time.Before(v.scope.OptedIn):
		return "the pod is older than the namespace's label " + inject.LabelInject
	}
	if v.injected {
		return "the pod was injected without this template, which may be newer than the pod"
	}
	return "Pillion was not called or did not answer when the pod was created, or the template is newer"
}

// altered returns the first difference, and the number of further ones.
func (v *view) altered(d *inject.Decision) string {
	why, more := "", 0
	for _, f := range v.result.Check() {
		switch {
		case f.Template != d.Template:
		case why == "":
			why = f.Message
			if f.Path != "" {
				why = schema.Where(f.Path) + ": " + why
			}
		default:
			more++
		}
	}
	switch {
	case why == "":
		return "it differs from the template"
	case more > 0:
		return fmt.Sprintf("%s; and %d more", why, more)
	}
	return why
}
