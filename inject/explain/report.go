// SPDX-License-Identifier: Apache-2.0

// Package explain says what becomes of a pod, and why, to the person who wrote
// it. All of it is a view of the [inject.Result] that the webhook itself would
// compute; the package decides nothing.
package explain

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/pillion-dev/pillion/inject"
)

// Report is all there is to say about one object's pod. Its JSON is a format
// that people script on: members are added, never renamed or removed.
type Report struct {
	Object Object `json:"object"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Called says whether the API server asks Pillion about this pod; absent where
	// no cluster was looked at.
	Called *bool `json:"called,omitempty"`
	// Webhooks are the entries of the installed webhook configurations.
	Webhooks []Webhook `json:"webhooks,omitempty"`
	// Templates, in the order in which they are applied.
	Templates []Template `json:"templates"`
	// Gone are the templates that the pod says were injected, by revision, and that
	// are not there.
	Gone map[string]string `json:"gone,omitempty"`
	// Mistakes are what the pod's annotations ask for and nobody knows.
	Mistakes []inject.Finding `json:"mistakes,omitempty"`
	// Patch is what the mutating webhook adds, as RFC 6902.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Final is what the validating webhook says then.
	Final Final `json:"final"`
}

// Object is what was asked about.
type Object struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Live      bool   `json:"live"` // a pod that exists: compared, not predicted
}

// Template is the decision about one template.
type Template struct {
	inject.Decision

	// InjectedBy is the revision that the pod says it was injected by.
	InjectedBy string `json:"injectedBy,omitempty"`
	// State is what a pod that exists has of the template.
	State State `json:"state,omitempty"`
}

// Final is a verdict about the final pod.
type Final struct {
	Verdict  string           `json:"verdict"` // allowed, warned or denied
	Findings []inject.Finding `json:"findings,omitempty"`
}

// Subject is what a report is made of.
type Subject struct {
	Object   Object
	Request  inject.Request
	Webhooks []Webhook // nil where no cluster was looked at
}

// New explains what becomes of a pod. The error says what is wrong with its JSON.
func New(injector *inject.Injector, s Subject) (*Report, error) {
	s.Request.Detail = true
	if s.Webhooks != nil {
		s.Request.OptedIn = called(s.Webhooks, Mutating)
	}
	result, err := injector.Inject(s.Request)
	if err != nil {
		return nil, err
	}
	r := &Report{Object: s.Object, Webhooks: s.Webhooks, Mistakes: result.Findings}
	evidence := EvidenceOf(s.Request.Object)
	r.Gone = maps.Clone(evidence.InjectedBy)
	for i, t := range injector.Set().Templates {
		d := result.Decisions[i]
		of := Template{Decision: d, InjectedBy: evidence.InjectedBy[d.Template]}
		delete(r.Gone, d.Template)
		if s.Object.Live {
			of.State = evidence.State(t, &d)
		}
		r.Templates = append(r.Templates, of)
	}
	final := s.Request
	asked := true
	if s.Webhooks != nil {
		asked = called(s.Webhooks, Mutating)
		r.Called = new(asked)
	}
	if asked && !s.Object.Live {
		r.Patch = result.Patch()
		if final.Object, err = inject.Apply(s.Request.Object, result.Ops); err != nil {
			return nil, err
		}
	}
	r.Final.Verdict = "allowed"
	if s.Webhooks == nil || called(s.Webhooks, Validating) {
		verdict, err := inject.NewJudge(injector, nil, true).Judge(final)
		if err != nil {
			return nil, err
		}
		r.Final = Final{verdict.Word(), verdict.Judged}
		if verdict.Denied { // whether another replica knows better is not known here
			r.Final.Verdict = "denied"
		}
	}
	r.Summary = r.summary()
	return r, nil
}

// summary is the report in one sentence.
func (r *Report) summary() string {
	wanted, right := 0, 0
	for i := range r.Templates {
		t := &r.Templates[i]
		switch t.Code {
		case inject.CodeInjected, inject.CodePresent, inject.CodeConflict, inject.CodeInvalidParameter, inject.CodeRenderFailed:
			wanted++
		}
		if t.Code == inject.CodePresent && len(t.Altered) == 0 || t.Code == inject.CodeInjected && !r.Object.Live {
			right++
		}
	}
	switch {
	case r.Called != nil && !*r.Called:
		return "The API server does not ask Pillion about this pod, so nothing is injected."
	case r.Object.Live && right < wanted:
		return fmt.Sprintf("The pod has %d of the %s that it should have.", right, plural(wanted, "template"))
	case r.Object.Live:
		return fmt.Sprintf("The pod has all that it should have, of %s.", plural(wanted, "template"))
	case r.Final.Verdict == "denied":
		return "The pod would be refused."
	case wanted == 0:
		return "Nothing is injected."
	}
	return fmt.Sprintf("The pod gets %d of the %s.", right, plural(len(r.Templates), "template"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Outcome says in a word or two what became of a template of the report.
func (r *Report) Outcome(t *Template) string {
	switch {
	case r.Object.Live:
		if t.State == NotWanted {
			return "not injected"
		}
		return string(t.State)
	case r.Called != nil && !*r.Called && t.Code == inject.CodeInjected:
		return "would be injected, were the API server to ask"
	case t.Code == inject.CodeInjected:
		return "injected"
	case t.Code == inject.CodePresent:
		return "there already"
	}
	return "not injected"
}
