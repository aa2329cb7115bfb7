// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// Template is what was decided about one template.
type Template struct {
	Template string `json:"template"`
	Revision string `json:"revision"` // of the template as it is now
	// Code is the reason code. Of a pod that exists it is absent if State says all.
	Code inject.Code `json:"code,omitempty"`
	// Message reports why, in one sentence.
	Message string `json:"message"`
	// Requested: the pod's annotation names the template.
	Requested bool `json:"requested,omitempty"`
	// State is what a pod that exists has of the template.
	State State `json:"state,omitempty"`
	// InjectedBy is the revision that the pod says it was injected by.
	InjectedBy string `json:"injectedBy,omitempty"`
	// Passed are the rules before the one that decided, and why each did not apply.
	Passed []inject.Step `json:"passed,omitempty"`
	// Params are the values that the template was rendered with.
	Params []templates.Value `json:"params,omitempty"`
	// Added are the places where the pod has nothing of what the template has. A new
	// item of a list is at "<list>/-".
	Added []Place `json:"added,omitempty"`
	// Kept are the places where the pod says something else and wins.
	Kept []Place `json:"kept,omitempty"`
	// Altered are the protected places where the pod says something else.
	Altered []Place `json:"altered,omitempty"`
	// Obstacles are the places that keep the template out.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// Notes are things that the pod's author should know, one sentence each.
	Notes []string `json:"notes,omitempty"`
	// Mode is what the validating webhook does about this template's findings.
	Mode templates.ValidateMode `json:"mode"`
}

// Place is where the pod and a template differ.
type Place struct {
	Path     string          `json:"path"`     // JSON Pointer into the pod as received
	Pod      json.RawMessage `json:"pod"`      // null where the pod says nothing
	Template json.RawMessage `json:"template"` // null where the template says nothing
}

// Obstacle is a place that keeps a template out.
type Obstacle struct {
	Place

	Message string `json:"message"`
}

// Finding is an [inject.Finding] with values in the place of texts.
type Finding struct {
	Code     inject.Code            `json:"code"`
	Template string                 `json:"template,omitempty"` // "" where no template is meant that exists
	Path     string                 `json:"path"`               // "" where no one place is to blame
	Expected json.RawMessage        `json:"expected,omitempty"` // absent if nothing should be there
	Found    json.RawMessage        `json:"found,omitempty"`    // absent if nothing is there
	Message  string                 `json:"message"`            // one sentence, with what to do
	Mode     templates.ValidateMode `json:"mode,omitempty"`     // Deny if it is reason enough to refuse the pod
}

// explained is what was decided about a template for a pod that is created or,
// if it is live, exists. If Pillion does not process the pod, unreached says why.
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
		of.Notes = nil // which are about an injection
	}
	of.Message = of.why(d)
	switch {
	case live && t.ReadsRequest():
		of.Code, of.Message = "", "according to the pod's annotation; nothing else is known"
	case live && d.Code.Succeeded():
		of.Code = "" // which is about a pod that is to be made
	case d.Code == inject.CodeInjected && unreached != "":
		of.Code, of.Message = inject.CodeNotInjected, of.Message+", but "+unreached
	}
	return of
}

// why is the decision's sentence, or the one of the pod's state.
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

// value is JSON as what it is; what is none becomes a text.
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
