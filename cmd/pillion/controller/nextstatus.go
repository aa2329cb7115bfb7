// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// The limits of a message, in bytes: mostText is the API's for the note of an Event.
const (
	mostText     = 1024
	mostProblems = 10
)

// verdict is what compiling the content of a template gives.
type verdict struct {
	revision string // "": invalid
	problems string // see listProblems
}

// facts are what determines the status of a template.
type facts struct {
	name       string
	generation int64
	verdict    verdict
	taken      bool   // whether a template of the cluster has the name of this template of a namespace
	excess     string // the limit that it exceeds, or ""
	// misreplaced is what is wrong with spec.replaces, given the other templates.
	misreplaced string
	count       func(revision string) v1alpha1.PodCounts
}

// nextStatus returns the status of a template, given its former one or nil. The condition gets the time now only if its status
// changes.
func nextStatus(before *v1alpha1.Status, f facts, now metav1.Time) *v1alpha1.Status {
	status := &v1alpha1.Status{Revision: f.verdict.revision, Pods: &v1alpha1.PodCounts{}}
	if before != nil {
		status.Conditions = slices.Clone(before.Conditions)
		if status.Revision == "" {
			status.Revision = before.Revision
		}
	}
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonValid, Message: "Pillion uses this template, unless a file has one of this name.", ObservedGeneration: f.generation, LastTransitionTime: now}
	switch {
	case f.taken:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNameTaken
		c.Message = fmt.Sprintf("The %s %s takes precedence, so no pod gets this template. Create this template again with another name.", v1alpha1.ClusterKind, f.name)
	case f.excess != "":
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonTooMany
		c.Message = "No pod gets this template: " + f.excess + ". Delete others that you do not need."
	case f.verdict.revision == "":
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalid
		c.Message = invalidMessage(status.Revision, f.verdict.problems)
	case f.misreplaced != "":
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonCannotReplace
		c.Message = shortenMessage("No pod gets this template, unless a file changes that: spec.replaces: " + f.misreplaced + ".")
	}
	meta.SetStatusCondition(&status.Conditions, c)
	if status.Revision != "" && !f.taken { // otherwise the pods that record this name have the template of the cluster
		*status.Pods = f.count(status.Revision)
	}
	return status
}

// invalidMessage returns the message about a template with problems. The revision is of its last valid
// content, or "".
func invalidMessage(revision, problems string) string {
	use := "no pod gets this template"
	if revision != "" {
		use = "replicas that know its last valid content use that, with revision " + revision
	}
	return shortenMessage("This template is invalid, so " + use + ". Fix it: " + problems)
}

// listProblems returns the first problems as text, and the number of the others.
func listProblems(problems problem.Problems) string {
	all := make([]string, 0, mostProblems)
	for i, p := range problems {
		if i == mostProblems {
			all = append(all, fmt.Sprintf("and %d more", len(problems)-i))
			break
		}
		p.File, p.Template = "", "" // the object is known
		all = append(all, strings.TrimPrefix(p.String(), ": "))
	}
	text := strings.Join(all, "; ")
	return strings.Clone(text[:min(len(text), mostText)]) // a message has no more of it
}

func shortenMessage(text string) string { return shortenTo(text, mostText) }

func shortenTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const dots = " ..."
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// readyCondition returns the condition of a status, or an empty one if there is none yet.
func readyCondition(status *v1alpha1.Status) metav1.Condition {
	if status != nil {
		if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c != nil {
			return *c
		}
	}
	return metav1.Condition{}
}
