// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
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
	// Added are the places where the pod lacks a value of the template. The path of a new list
	// item is "<list>/-".
	Added []Place `json:"added,omitempty"`
	// Kept are the places at which the pod has another value and keeps it.
	Kept []Place `json:"kept,omitempty"`
	// Altered are the protected places at which the pod has another value.
	Altered []Place `json:"altered,omitempty"`
	// Obstacles are the places that prevent the injection.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// Notes are sentences for the pod's author.
	Notes []string `json:"notes,omitempty"`
	// Mode is the reaction of the validating webhook to this template's findings.
	Mode templates.ValidateMode `json:"mode"`
}

// Place is a difference between the pod and a template.
type Place struct {
	Path     string          `json:"path"`     // JSON Pointer into the original pod
	Pod      json.RawMessage `json:"pod"`      // null if the pod has no value
	Template json.RawMessage `json:"template"` // null if the template has no value
}

// Obstacle is a place that prevents the injection of a template.
type Obstacle struct {
	Place

	Message string `json:"message"`
}

// Finding is an [inject.Finding] with JSON values instead of strings.
type Finding struct {
	Code     inject.Code            `json:"code"`
	Template string                 `json:"template,omitempty"` // "" if the finding is about no existing template
	Path     string                 `json:"path"`               // "" if no single place is the cause
	Expected json.RawMessage        `json:"expected,omitempty"` // absent if there should be no value
	Found    json.RawMessage        `json:"found,omitempty"`    // absent if there is no value
	Message  string                 `json:"message"`            // one sentence, with what to do
	Mode     templates.ValidateMode `json:"mode,omitempty"`     // Deny if the finding suffices to deny the pod
}

// explained returns the decision about a template, for a new pod or, if live is set, an
// existing one. If Pillion does not process the pod, unreached is the reason.
func explained(d *inject.Decision, evidence *Evidence, t *templates.Template, live bool, unreached string) Template {
	of := Template{
		Template: d.Template, Revision: d.Revision, Code: d.Code, Requested: d.Requested, InjectedBy: evidence.InjectedBy[d.Template],
		Passed: d.Passed, Params: d.Params, Added: places(d.Added), Kept: places(d.Kept), Altered: places(d.Altered),
		Notes: d.Notes, Mode: d.Mode,
	}
	for _, o := range d.Obstacles {
		of.Obstacles = append(of.Obstacles, Obstacle{places([]inject.Place{o.Place})[0], o.Message})
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

func places(all []inject.Place) []Place {
	var out []Place
	for _, p := range all {
		out = append(out, Place{p.Path, value(p.Pod), value(p.Template)})
	}
	return out
}

func findings(all []inject.Finding) []Finding {
	var out []Finding
	for i := range all {
		f := &all[i]
		out = append(out, Finding{f.Code, f.Template, f.Path, value(f.Expected), value(f.Found), f.Message, f.Mode})
	}
	return out
}

// value returns a string as JSON: unchanged if it is JSON already, else as a JSON string.
func value(text string) json.RawMessage {
	switch {
	case text == "":
		return nil
	case json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		panic("explain: a string is not JSON: " + err.Error())
	}
	return quoted
}
