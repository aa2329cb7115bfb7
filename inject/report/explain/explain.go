// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// New explains what will happen to a pod that is created, or whether an existing pod is as it should be. It returns an error if the
// pod is not valid JSON.
func New(injector *inject.Injector, s Subject) (*Report, error) {
	injector = injector.For(s.Request.Namespace.Name)
	if s.isShadowed() {
		return explainShadowed(injector, s)
	}
	s.Request.Detail = true
	if s.Webhooks != nil {
		s.Request.OptedIn = isTypeCalled(s.Webhooks, Mutating)
	}
	result, err := injector.Inject(s.Request)
	if err != nil {
		return nil, err
	}
	r := &Report{Object: s.Object, Webhooks: s.Webhooks, Answered: s.Answered, Mistakes: result.Findings, Notes: s.Notes, incomplete: s.Incomplete}
	for i := range s.Misplaced {
		r.Misplaced = append(r.Misplaced, s.Misplaced[i].Message)
	}
	if s.Request.Namespace.Known {
		r.Misplaced = append(r.Misplaced, injector.NamespaceMistakes(s.Request.Namespace)...)
	}
	evidence := EvidenceOf(s.Request.Object)
	evidence.Without(injector.Set(), result.Decisions)
	r.Gone = maps.Clone(evidence.InjectedBy)
	if s.Webhooks != nil {
		r.Called = new(isTypeCalled(s.Webhooks, Mutating))
	}
	causes := s.readCauses(&evidence, result)
	for i, t := range injector.Set().Templates {
		d := &result.Decisions[i]
		delete(r.Gone, d.Template)
		if s.Object.Live {
			r.Templates = append(r.Templates, explainExisting(d, &evidence, t, causes))
		} else {
			r.Templates = append(r.Templates, explainNewPod(d, &evidence, r.whyUnreached()))
		}
		r.Templates[i].isDefault = t.Spec.Default
		if s.Object.Live && t.ReadsRequest() {
			r.Notes = append(r.Notes, ByRequest(t.Name))
		}
	}
	if r.Final, err = r.finalVerdict(injector, s.Request, result); err != nil {
		return nil, err
	}
	r.checkFit(&s, result)
	if r.Unread = s.Unread; s.Unread {
		r.Shows = requestsOf(&s.Request)
		if len(r.Mistakes) == 0 { // with templates, addOptedIn adds them
			if r.Mistakes, err = injector.PodMistakes(s.Request); err != nil {
				return nil, err
			}
		}
	}
	if s.Incomplete || s.Unread {
		r.dropUnknownNames()
	} else {
		r.addNote(unreadNote(injector, s.Request.Object))
	}
	r.addNote(unknownAccount(result, &s.Request))
	r.Summary = r.summary()
	if err := r.addRecreateAdvice(&s); err != nil {
		return nil, err
	}
	r.summarizeRejection(s.Rejected)
	return r, r.addOptedIn(injector, s, result)
}

// readCauses returns what is known about the causes of an existing pod's state.
func (s *Subject) readCauses(evidence *Evidence, result *inject.Result) *Causes {
	var pod struct{ Metadata metav1.ObjectMeta }
	if json.Unmarshal(s.Request.Object, &pod) != nil {
		pod.Metadata.CreationTimestamp = metav1.Time{} // it is unknown
	}
	return &Causes{
		Past: s.Past, Created: pod.Metadata.CreationTimestamp.Time, Injected: len(evidence.InjectedBy) > 0,
		NotCalled: notCalled(s.Webhooks), Result: result,
	}
}

// addOptedIn adds what would happen to the pod if its namespace opted in. It adds nothing if the namespace or the pod has opted in.
func (r *Report) addOptedIn(injector *inject.Injector, s Subject, result *inject.Result) error {
	out := func(d inject.Decision) bool { return d.Code == inject.CodeNotOptedIn }
	if !slices.ContainsFunc(result.Decisions, out) || s.Webhooks != nil && len(s.Webhooks) == 0 {
		return nil
	}
	s.Object.Live, s.Webhooks, s.Answered, s.Request.OptedIn, s.Rejected = false, nil, nil, true, false
	would, err := New(injector, s)
	if err != nil {
		return err
	}
	var names []string
	for i := range would.Templates {
		if w := &would.Templates[i]; w.Code.Succeeded() {
			names = append(names, w.Template)
			if t := &r.Templates[i]; t.Code == inject.CodeNotOptedIn {
				t.Added, t.Kept, t.Params, t.Notes = w.Added, w.Kept, w.Params, w.Notes
			}
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
	if name := s.Request.Namespace.Name; len(names) > 0 && len(validation.IsDNS1123Label(name)) == 0 { // a file may have any name, and users paste the command
		r.OptInCommand = fmt.Sprintf("%s label namespace %s %s=%s --overwrite", cmp.Or(s.Kubectl, "kubectl"), name, inject.LabelInject, inject.Enabled)
	}
	if len(r.Final.Findings)+len(r.Mistakes) == 0 {
		r.Mistakes = would.Final.Findings
	}
	return nil
}

// checkFit checks whether the injected pod fits into its namespace.
func (r *Report) checkFit(s *Subject, result *inject.Result) {
	if s.Original != nil && !r.Object.Live {
		r.Original = s.Original(s.Request.Object)
	}
	if r.Patch == nil {
		return
	}
	r.Effects = limits.EffectsOf(s.Request.Object, result.InjectedJSON(), s.Request.Owner.Kind)
	if s.Misfits == nil {
		return
	}
	var note string
	r.Misfits, note = s.Misfits(s.Request.Object, result.InjectedJSON())
	r.addNote(note)
}

// addNote adds a note, unless it is "".
func (r *Report) addNote(text string) {
	if text != "" {
		r.Notes = append(r.Notes, text)
	}
}

// finalVerdict returns the verdict of the validating webhook about the final pod. For a new pod, it also sets the patch.
func (r *Report) finalVerdict(injector *inject.Injector, req inject.Request, result *inject.Result) (f Final, err error) {
	if isFalse(r.Answered) && !r.Object.Live {
		return Final{Verdict: r.verdictUnanswered()}, nil
	}
	if !isFalse(r.Called) && !r.Object.Live {
		r.Patch = result.Patch()
		req.Object = result.InjectedJSON()
	}
	if r.Webhooks != nil && !isTypeCalled(r.Webhooks, Validating) {
		return Final{Verdict: "allowed"}, nil
	}
	judge := inject.NewJudge(injector, nil, true)
	if r.Object.Live { // it may be older than the template; a new pod would be injected
		judge = judge.Lenient()
	}
	verdict, err := judge.Judge(req)
	if err != nil {
		return f, err
	}
	r.correctMessages(verdict)
	f = Final{"allowed", slices.DeleteFunc(verdict.Judged, func(f inject.Finding) bool {
		return r.Object.Live && slices.ContainsFunc(injector.Set().Templates, func(t *templates.Template) bool { return t.Name == f.Template && t.ReadsRequest() })
	})}
	switch { // assumes that no other replica has newer templates
	case len(f.Findings) == 0:
	case f.Findings[0].Mode == v1alpha1.Deny: // findings with mode Deny come first
		f.Verdict = "denied"
	default:
		f.Verdict = "warned"
	}
	return f, nil
}

// dropUnknownNames removes findings about names of templates and parameters, because a template that cannot be read may have them.
func (r *Report) dropUnknownNames() {
	unknown := func(f inject.Finding) bool {
		return !f.AboutOwnKey() && (f.Code == inject.CodeUnknownTemplate || f.Code == inject.CodeUnknownParameter)
	}
	r.Mistakes, r.Final.Findings = slices.DeleteFunc(r.Mistakes, unknown), slices.DeleteFunc(r.Final.Findings, unknown)
	if len(r.Final.Findings) == 0 && r.Final.Verdict == "warned" {
		r.Final.Verdict = "allowed"
	}
}

// correctMessages replaces the cause in findings about absent templates. The webhook can only guess the cause, and the report knows it.
// It also replaces the places of what keeps a template out of a pod: the report is about the pod as its author wrote it, and not about
// the pod with the additions of other templates, whose lists have other indexes.
func (r *Report) correctMessages(v *inject.Verdict) {
	for i := range v.Judged {
		f := &v.Judged[i]
		if k := slices.IndexFunc(r.Templates, func(t Template) bool { return t.Template == f.Template && t.Code == f.Code }); k >= 0 {
			for _, o := range r.Templates[k].Obstacles {
				if o.Message == f.Message {
					f.Path = o.Path
				}
			}
		}
		t := slices.IndexFunc(r.Templates, func(t Template) bool { return t.Template == f.Template && t.Code == inject.CodeNotInjected })
		if f.Code == inject.CodeNotInjected && t >= 0 {
			f.Message = "nothing of it is in the pod: " + r.Templates[t].cause
		}
	}
}

// verdictUnanswered returns the verdict of the API server about the pod if Pillion does not answer.
func (r *Report) verdictUnanswered() string {
	for i := range r.Webhooks {
		if w := &r.Webhooks[i]; w.Called && w.FailurePolicy == string(admissionregistrationv1.Fail) {
			return "denied"
		}
	}
	return "allowed"
}

// isShadowed reports whether a pod is to be created in a shadow namespace.
func (s *Subject) isShadowed() bool {
	return !s.Object.Live && !s.Request.OptedIn && s.Request.Namespace.Labels[inject.LabelInject] == inject.Shadow && !isTypeCalled(s.Webhooks, Mutating)
}

// explainShadowed explains a pod in a shadow namespace: nothing is injected, and what would happen if the namespace opted in.
func explainShadowed(injector *inject.Injector, s Subject) (*Report, error) {
	would := s
	would.Webhooks, would.Answered, would.Request.OptedIn, would.Rejected = nil, nil, true, false
	r, err := New(injector, would)
	if err != nil {
		return nil, err
	}
	if r.Webhooks, r.Answered = s.Webhooks, s.Answered; s.Webhooks != nil {
		r.Called = new(false)
	}
	why := fmt.Sprintf("the namespace %s has the label %s: %s", s.Request.Namespace.Name, inject.LabelInject, inject.Shadow)
	for i := range r.Templates {
		t := &r.Templates[i]
		if t.Code == inject.CodeInjected {
			t.Code, t.Message = inject.CodeNotOptedIn, fmt.Sprintf("%s, but %s; with %s it would be injected", t.Message, why, inject.Enabled)
		}
		t.Passed = slices.DeleteFunc(t.Passed, func(p inject.Step) bool { return p.Code == inject.CodeNotOptedIn })
	}
	r.Patch, r.Final = nil, Final{Verdict: "allowed", Findings: r.Final.Findings}
	r.Summary = fmt.Sprintf("Nothing is injected, because %s. With %s %s", why, inject.Enabled, strings.ToLower(r.Summary[:1])+r.Summary[1:])
	r.summarizeRejection(s.Rejected)
	return r, nil
}

// addRecreateAdvice adds to the summary whether a new pod would have what an existing pod lacks.
func (r *Report) addRecreateAdvice(s *Subject) error {
	fails := func(t Template) bool { return t.State == Missing && t.Code.Failed() }
	missing := func(t Template) bool { return t.State == Missing }
	if !r.Object.Live || s.Recreate == nil || r.whyUnreached() != "" || !slices.ContainsFunc(r.Templates, missing) || slices.ContainsFunc(r.Templates, fails) {
		return nil
	}
	why, err := s.Recreate(s.Request.Object)
	switch {
	case err != nil:
		return err
	case why == "":
		r.Summary += " Delete it and create it again; if it has a controller, that does so."
	default:
		r.Summary += " A new pod may not help: " + why + "."
	}
	return nil
}

// Subject is the input of a report.
type Subject struct {
	Object   Object
	Request  inject.Request
	Webhooks []Webhook // nil if no cluster was read
	Answered *bool     // whether Pillion answers; nil if that is unknown
	Past     Past
	// Incomplete is set if some templates are unknown, and Unread if all are.
	Incomplete, Unread bool
	Notes              []string
	// Rejected is set if an API server rejects the pod as written. Notes has the reasons.
	Rejected bool
	Kubectl  string // the beginning of a kubectl command for the same cluster; "" is kubectl
	// Misplaced has the findings of [inject.Injector.Misplaced].
	Misplaced []inject.Finding
	// Misfits returns why the injected pod does not fit into the namespace although the original pod does, and a note about what could
	// not be read. It is nil if nothing is known.
	Misfits func(pod, injected []byte) (misfits []string, note string)
	// Recreate returns why a new pod in place of an existing one would not be current, or "" if it would be. It is nil if
	// nothing is known.
	Recreate func(pod []byte) (why string, err error)
	// Original returns why the original pod does not fit into the namespace. It may be nil.
	Original func(pod []byte) []string
}
