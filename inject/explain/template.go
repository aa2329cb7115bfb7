// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
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
	// Params are the values of the template's parameters.
	Params []templates.Value `json:"params,omitempty"`
	// Added are the values of the template that the pod lacks. The path of a new list
	// item is "<list>/-".
	Added []inject.Difference `json:"added,omitempty"`
	// Kept are the differences in which the pod keeps its own value.
	Kept []inject.Difference `json:"kept,omitempty"`
	// Altered are the differences in protected fields.
	Altered []inject.Difference `json:"altered,omitempty"`
	// Obstacles are the differences that prevent the injection.
	Obstacles []inject.Obstacle `json:"obstacles,omitempty"`
	// Notes are sentences for the pod's author.
	Notes []string `json:"notes,omitempty"`
	// Mode is the reaction of the validating webhook to this template's findings.
	Mode templates.ValidateMode `json:"mode"`
}

// explained returns the decision about a template, for a new pod or, if live is set, an
// existing one. If Pillion does not process the pod, unreached is the reason.
func explained(d *inject.Decision, evidence *Evidence, t *templates.Template, live bool, unreached string) Template {
	of := Template{
		Template: d.Template, Revision: d.Revision, Code: d.Code, Requested: d.Requested, InjectedBy: evidence.InjectedBy[d.Template],
		Passed: d.Passed, Params: d.Params, Added: d.Added, Kept: d.Kept, Altered: d.Altered, Obstacles: d.Obstacles,
		Notes: d.Notes, Mode: d.Mode,
	}
	if live {
		of.State = evidence.State(t, d)
		of.Notes = nil // notes are about an injection
	}
	of.Message = of.why(d)
	switch {
	case live && t.ReadsRequest():
		of.Code, of.Message = "", "according to the pod's annotation; nothing else is known"
	case live && d.Code.Succeeded():
		of.Code = "" // the code is about a new pod
	case d.Code == inject.CodeInjected && unreached != "":
		of.Code, of.Message = inject.CodeNotInjected, of.Message+", but "+unreached
	}
	return of
}

// why returns the decision's sentence, or one about the pod's state.
func (t *Template) why(d *inject.Decision) string {
	wanted := d.Sentence()
	if i := slices.IndexFunc(d.Passed, func(s inject.Step) bool { return s.Code == inject.CodeNotRequested }); i >= 0 {
		wanted = d.Passed[i].Message
	}
	made := d.Code.Succeeded()
	switch {
	case t.State == Outdated && !made:
		return "it was injected, but a new pod would not get it: " + d.Sentence()
	case !made:
		return d.Sentence()
	case t.State == Current:
		return wanted + ", and all of it is there"
	case t.State == Missing && t.InjectedBy != "":
		return wanted + "; it was injected according to the pod's annotation, but its containers are missing"
	case t.State == Missing:
		return wanted + ", but the pod has nothing of it"
	case t.State == Altered:
		return wanted + "; it was injected, but differs from the template"
	case t.State == Outdated:
		return wanted + "; it was injected with another revision of the template than a new pod would be"
	case d.Code == inject.CodePresent:
		return wanted + ", and all of it is there already"
	}
	return wanted
}
