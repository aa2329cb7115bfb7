// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Template is the decision about one template.
type Template struct {
	Template string `json:"template"`
	Revision string `json:"revision"` // of the current template
	// Code is the reason code. For an existing pod, it is absent if State says everything.
	Code inject.Code `json:"code,omitempty"`
	// Message is the reason in one sentence.
	Message string `json:"message"`
	// Requested reports whether the pod's annotation names the template.
	Requested bool `json:"requested,omitempty"`
	// State is the state of an existing pod for this template.
	State State `json:"state,omitempty"`
	// InjectedBy is the revision that was injected, according to the pod.
	InjectedBy string `json:"injectedBy,omitempty"`
	// Passed are the rules before the deciding one, with the reason why each did not apply.
	Passed []inject.Step `json:"passed,omitempty"`
	// Also are further reasons why the pod does not get the template.
	Also []inject.Step `json:"also,omitempty"`
	// Params are the values of the template's parameters.
	Params []params.Value `json:"params,omitempty"`
	// Added are the values of the template that the pod lacks. The path of a new item of a list ends in "/-".
	Added []inject.Difference `json:"added,omitempty"`
	// Kept are the places at which there is another value than the template's, and stays.
	Kept []inject.Kept `json:"kept,omitempty"`
	// Altered are the differences in protected fields.
	Altered []inject.Difference `json:"altered,omitempty"`
	// Obstacles are the differences that prevent the injection.
	Obstacles []inject.Obstacle `json:"obstacles,omitempty"`
	// Notes are sentences for the pod's author.
	Notes []string `json:"notes,omitempty"`
	// Mode is the reaction of the validating webhook to this template's findings.
	Mode v1alpha1.ValidateMode `json:"mode"`

	cause     string // why an existing pod is not current, or a new one is not processed
	isDefault bool
}

// explainNewPod returns the decision about a template for a new pod. If Pillion does not process the
// pod, unreached is the reason.
func explainNewPod(d *inject.Decision, evidence *Evidence, unreached string) Template {
	t := newTemplate(d, evidence)
	if t.Message = Sentence(d); d.Code == inject.CodeInjected && unreached != "" {
		t.Code, t.Message, t.cause = inject.CodeNotInjected, t.Message+", but "+unreached, unreached
	}
	return t
}

// Sentence returns why a new pod gets a template, or why not. The decision must be one of a request with Detail.
func Sentence(d *inject.Decision) string {
	switch {
	case !d.Code.Succeeded():
		return d.Sentence()
	case d.Code == inject.CodePresent:
		return whyWanted(d) + ", and the pod already has all of it"
	}
	return whyWanted(d)
}

// explainExisting returns the decision about a template for an existing pod.
func explainExisting(d *inject.Decision, evidence *Evidence, of *templates.Template, causes *Causes) Template {
	t := newTemplate(d, evidence)
	t.State = evidence.State(of, d)
	t.Notes = nil // notes are about an injection
	t.cause = causes.Of(d, t.InjectedBy, t.State)
	switch {
	case of.ReadsRequest():
		t.Code, t.Message = "", "according to the pod's annotation; nothing else is known"
	case t.State == Outdated && !d.Code.Succeeded():
		t.Message = t.cause
	case !d.Code.Succeeded():
		t.Message = d.Sentence()
	case t.State == Current:
		t.Code, t.Message = "", whyWanted(d)+", and all of it is there"
	case t.State == Missing:
		t.Code, t.Message = inject.CodeNotInjected, whyWanted(d)+", but the pod lacks it: "+t.cause
		if t.InjectedBy != "" || lacksRecordOnly(d) {
			t.Code = inject.CodeMissing
		}
	case t.State == Altered:
		t.Code, t.Message = inject.CodeAltered, whyWanted(d)+"; it was injected, but differs from the template: "+t.cause
	default:
		t.Code, t.Message = "", whyWanted(d)+"; "+t.cause // the code is about a new pod
	}
	return t
}

func newTemplate(d *inject.Decision, evidence *Evidence) Template {
	return Template{
		Template: d.Template, Revision: d.Revision, Code: d.Code, Requested: d.Requested, InjectedBy: evidence.InjectedBy[d.Template],
		Passed: d.Passed, Also: d.Also, Params: d.Params, Added: d.Added, Kept: d.Kept, Altered: d.Altered, Obstacles: d.Obstacles,
		Notes: d.Notes, Mode: d.Mode,
	}
}

// whyWanted returns why the pod should have the template.
func whyWanted(d *inject.Decision) string {
	if i := slices.IndexFunc(d.Passed, func(s inject.Step) bool { return s.Code == inject.CodeNotRequested }); i >= 0 {
		return d.Passed[i].Message
	}
	return d.Sentence()
}
