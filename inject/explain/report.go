// SPDX-License-Identifier: Apache-2.0

// Package explain says what becomes of a pod, and why, to the person who wrote
// it. All of it is a view of the [inject.Result] that the webhook itself would
// compute; the package decides nothing.
package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// Report is all there is to say about one object's pod. Its JSON is a format
// that people script on (README.md): members are added, never renamed or removed.
type Report struct {
	Object Object `json:"object"`
	// Same are other objects about which there is the same to say, but for places in the pod.
	Same []Object `json:"same,omitempty"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// OptedIn is, of a pod whose namespace has not opted in and that has not either, one
	// sentence about what a pod would get if the namespace did.
	OptedIn string `json:"optedIn,omitempty"`
	// Called says whether the API server asks Pillion about this pod, and Answered
	// whether anybody is there to answer; absent where that is not known.
	Called   *bool `json:"called,omitempty"`
	Answered *bool `json:"answered,omitempty"`
	// Webhooks are the entries of the installed webhook configurations.
	Webhooks []Webhook `json:"webhooks,omitempty"`
	// Templates, in the order in which they are applied.
	Templates []Template `json:"templates"`
	// Gone are the templates that the pod says were injected, by revision, and that
	// are not there.
	Gone map[string]string `json:"gone,omitempty"`
	// Mistakes are what the pod's annotations ask for and nobody knows.
	Mistakes []Finding `json:"mistakes,omitempty"`
	// Misplaced are sentences about what the workload has in its own metadata, where
	// Pillion does not read it.
	Misplaced []string `json:"misplaced,omitempty"`
	// Running is what the workload's running pods have; nil where that is not known.
	Running *Running `json:"running,omitempty"`
	// Patch is what the mutating webhook adds, as RFC 6902.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Final is what the validating webhook says then.
	Final Final `json:"final"`
	// Misfits are why the API server refuses the injected pod, and not the pod as it is.
	Misfits []string `json:"misfits,omitempty"`
	// Notes are sentences about the cluster, or about how the manifest is written.
	Notes []string `json:"notes,omitempty"`

	only bool // of some of the templates
}

// Object is what was asked about.
type Object struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Live      bool   `json:"live"` // a pod that exists: compared, not predicted
}

// Final is a verdict about the final pod.
type Final struct {
	Verdict  string    `json:"verdict"` // allowed, warned or denied
	Findings []Finding `json:"findings,omitempty"`
}

// Subject is what a report is made of.
type Subject struct {
	Object   Object
	Request  inject.Request
	Webhooks []Webhook // nil where no cluster was looked at
	Answered *bool     // nil where that is not known
	Notes    []string
	// Misplaced is what [inject.Injector.Misplaced] finds.
	Misplaced []inject.Finding
	// Misfits says what the namespace has against the injected pod alone, and in a
	// note what could not be read for that; nil where nothing is known.
	Misfits func(pod, injected []byte) (misfits []string, note string)
}

// New explains what becomes of a pod. The error says what is wrong with its JSON.
func New(injector *inject.Injector, s Subject) (*Report, error) {
	if s.shadowed() {
		return shadowed(injector, s)
	}
	s.Request.Detail = true
	if s.Webhooks != nil {
		s.Request.OptedIn = called(s.Webhooks, Mutating)
	}
	result, err := injector.Inject(s.Request)
	if err != nil {
		return nil, err
	}
	r := &Report{Object: s.Object, Webhooks: s.Webhooks, Answered: s.Answered, Mistakes: findings(result.Findings), Notes: s.Notes}
	for i := range s.Misplaced {
		r.Misplaced = append(r.Misplaced, s.Misplaced[i].Message)
	}
	evidence := EvidenceOf(s.Request.Object)
	r.Gone = maps.Clone(evidence.InjectedBy)
	if s.Webhooks != nil {
		r.Called = new(called(s.Webhooks, Mutating))
	}
	for i, t := range injector.Set().Templates {
		d := &result.Decisions[i]
		delete(r.Gone, d.Template)
		r.Templates = append(r.Templates, r.template(d, &evidence, t))
	}
	if r.Final, err = r.final(injector, s.Request, result); err != nil {
		return nil, err
	}
	if err := r.fit(&s, result); err != nil {
		return nil, err
	}
	r.Summary = r.summary()
	return r, r.ifOptedIn(injector, s, result)
}

// ifOptedIn adds what would become of the pod if its namespace opted in.
func (r *Report) ifOptedIn(injector *inject.Injector, s Subject, result *inject.Result) error {
	out := func(d inject.Decision) bool { return d.Code == inject.CodeNotOptedIn }
	if !slices.ContainsFunc(result.Decisions, out) || s.Webhooks != nil && len(s.Webhooks) == 0 {
		return nil
	}
	s.Object.Live, s.Webhooks, s.Answered, s.Request.OptedIn = false, nil, nil, true
	would, err := New(injector, s)
	if err != nil {
		return err
	}
	var names []string
	for i := range would.Templates {
		if c := would.Templates[i].Code; c == inject.CodeInjected || c == inject.CodePresent {
			names = append(names, would.Templates[i].Template)
		}
	}
	gets := strings.ToLower(would.Summary[:1]) + would.Summary[1:]
	if r.Object.Live {
		gets = strings.Replace(gets, "the pod", "a new pod", 1)
	}
	r.OptedIn = fmt.Sprintf("With the label %s: %s on the namespace, %s", inject.LabelInject, inject.Enabled, gets)
	if len(names) > 0 {
		r.OptedIn = strings.TrimSuffix(r.OptedIn, ".") + ": " + strings.Join(names, ", ") + "."
	}
	if len(r.Final.Findings)+len(r.Mistakes) == 0 {
		r.Mistakes = would.Final.Findings
	}
	return nil
}

// fit asks whether the pod fits into its namespace once it is injected.
func (r *Report) fit(s *Subject, result *inject.Result) error {
	if s.Misfits == nil || r.Patch == nil {
		return nil
	}
	injected, err := inject.Apply(s.Request.Object, result.Ops())
	if err != nil {
		return err
	}
	var note string
	if r.Misfits, note = s.Misfits(s.Request.Object, injected); note != "" {
		r.Notes = append(r.Notes, note)
	}
	return nil
}

// final is what becomes of the pod once all admission is done.
func (r *Report) final(injector *inject.Injector, req inject.Request, result *inject.Result) (f Final, err error) {
	if no(r.Answered) && !r.Object.Live {
		return Final{Verdict: r.unanswered()}, nil
	}
	if !no(r.Called) && !r.Object.Live {
		r.Patch = result.Patch()
		if req.Object, err = inject.Apply(req.Object, result.Ops()); err != nil {
			return f, err
		}
	}
	if r.Webhooks != nil && !called(r.Webhooks, Validating) {
		return Final{Verdict: "allowed"}, nil
	}
	judge := inject.NewJudge(injector, nil, true)
	if r.Object.Live { // may be older than the template, and would be injected
		judge = judge.Lenient()
	}
	verdict, err := judge.Judge(req)
	if err != nil {
		return f, err
	}
	f = Final{"allowed", findings(slices.DeleteFunc(verdict.Judged, func(f inject.Finding) bool {
		return r.Object.Live && slices.ContainsFunc(injector.Set().Templates, func(t *templates.Template) bool { return t.Name == f.Template && t.ReadsRequest() })
	}))}
	switch { // whether another replica knows better is not known here
	case len(f.Findings) == 0:
	case f.Findings[0].Mode == templates.Deny: // which come first
		f.Verdict = "denied"
	default:
		f.Verdict = "warned"
	}
	return f, nil
}

func no(known *bool) bool { return known != nil && !*known }

// unanswered is what the API server does where nobody answers it.
func (r *Report) unanswered() string {
	for i := range r.Webhooks {
		if w := &r.Webhooks[i]; w.Called && w.FailurePolicy == string(admissionregistrationv1.Fail) {
			return "denied"
		}
	}
	return "allowed"
}

// summary is the report in one sentence.
func (r *Report) summary() string {
	right := 0
	for i := range r.Templates {
		if c := r.Templates[i].Code; c == inject.CodePresent || c == inject.CodeInjected {
			right++
		}
	}
	with := ""
	if r.Final.Verdict == "warned" {
		with = ", with " + plural(len(r.Final.Findings), "warning")
	}
	switch {
	case r.Object.Live:
		return r.liveSummary()
	case no(r.Called):
		return "The API server does not ask Pillion about this pod, so Pillion injects nothing."
	case no(r.Answered) && r.Final.Verdict == "denied":
		return "Nobody answers for Pillion, so the pod would be refused."
	case no(r.Answered):
		return "Nobody answers for Pillion, so the pod would get nothing."
	case r.Final.Verdict == "denied":
		return "The pod would be refused."
	case len(r.Misfits) > 0:
		return "Once injected, the pod would be refused."
	case right == 0:
		return fmt.Sprintf("The pod gets nothing%s.", with)
	case right == len(r.Templates):
		return fmt.Sprintf("The pod gets %s%s.", plural(right, "template"), with)
	}
	return fmt.Sprintf("The pod gets %d of the %s%s.", right, plural(len(r.Templates), "template"), with)
}

// liveSummary counts what a pod that exists has of what it should have.
func (r *Report) liveSummary() string {
	n, failed, by := 0, 0, map[State]int{}
	for i := range r.Templates {
		if t := &r.Templates[i]; t.State != NotWanted {
			n++
			by[t.State]++
			if Failed(t.Code) && t.State == Missing {
				failed++
			}
		}
	}
	var parts []string
	for _, s := range States() {
		if by[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", by[s], s))
		}
	}
	switch {
	case n == 0:
		return "The pod is to have none of the templates, and has none of them."
	case by[Current] == n:
		return fmt.Sprintf("The pod has all that it should have: %s.", plural(n, "template"))
	}
	also := ""
	if failed > 0 {
		also = fmt.Sprintf("; a new pod would lack %s too, so a restart does not help: fix this first", plural(failed, "template"))
	}
	return fmt.Sprintf("The pod is not as it should be: %s%s.", strings.Join(parts, ", "), also)
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
	case t.State == NotWanted:
		return "not injected"
	case r.Object.Live:
		return string(t.State)
	case t.Code == inject.CodeInjected:
		return "injected"
	case t.Code == inject.CodePresent:
		return "there already"
	}
	return "not injected"
}
