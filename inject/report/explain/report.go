// SPDX-License-Identifier: Apache-2.0

// Package explain reports to users whether a pod gets its sidecars, and why. A report
// is a view of the [inject.Result] that the webhook computes; this package decides nothing.
package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
)

// Report is the report about one object's pod. Its JSON is a stable format for scripts
// (README.md): fields may be added, but not renamed or removed.
type Report struct {
	Object Object `json:"object"`
	// Same lists other objects with the same report, apart from paths in the pod.
	Same []Object `json:"same,omitempty"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// OptedIn is set if neither the namespace nor the pod has opted in. It is one sentence about
	// what the pod would get if the namespace did.
	OptedIn string `json:"optedIn,omitempty"`
	// OptInCommand opts the namespace in. It is set if the pod would get a template then.
	OptInCommand string `json:"optInCommand,omitempty"`
	// Called reports whether the API server calls Pillion for this pod, and Answered whether
	// Pillion is ready to answer. They are absent if that is unknown.
	Called   *bool `json:"called,omitempty"`
	Answered *bool `json:"answered,omitempty"`
	// Webhooks are the entries of the installed webhook configurations.
	Webhooks []Webhook `json:"webhooks,omitempty"`
	// Templates are in the order in which they are applied.
	Templates []Template `json:"templates"`
	// Gone are the templates, with their revisions, that were injected according to the pod, and
	// no longer exist.
	Gone map[string]string `json:"gone,omitempty"`
	// Mistakes are unknown templates and parameters in the pod's annotations.
	Mistakes []inject.Finding `json:"mistakes,omitempty"`
	// Misplaced has sentences about labels and annotations in the workload's own metadata, where
	// Pillion does not read them.
	Misplaced []string `json:"misplaced,omitempty"`
	// Running compares the workload's running pods; nil if they are unknown.
	Running *Running `json:"running,omitempty"`
	// Failing is why the workload cannot create its pods at the moment, according to the cluster.
	Failing string `json:"failing,omitempty"`
	// FailingHint is what to do about that, and FailingCommand is how, if the cause is known.
	FailingHint    string `json:"failingHint,omitempty"`
	FailingCommand string `json:"failingCommand,omitempty"`
	// Patch is the mutating webhook's patch, as RFC 6902.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Final is the validating webhook's verdict about the pod with that patch.
	Final Final `json:"final"`
	// Rejected is set if an API server rejects the pod as written. Notes has the reasons.
	Rejected bool `json:"rejected,omitempty"`
	// Misfits are the reasons why the API server would reject the injected pod, but not the
	// original one.
	Misfits []string `json:"misfits,omitempty"`
	// Effects are what the additions change for the rest of the pod.
	Effects []string `json:"effects,omitempty"`
	// Original are the reasons why the API server would deny the pod without Pillion too.
	Original []string `json:"original,omitempty"`
	// Notes are sentences about the cluster, or about the notation of the manifest.
	Notes []string `json:"notes,omitempty"`

	// Unread is set if no template can be read. Then Shows has sentences about what the pod itself asks of Pillion, and
	// what the cluster shows of its workload.
	Unread bool     `json:"unread,omitempty"`
	Shows  []string `json:"shows,omitempty"`

	only       bool // the report covers only some templates
	incomplete bool // some templates are unknown
}

// Object is the object that the report is about.
type Object struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Live      bool   `json:"live"` // an existing pod, which is compared with the templates
}

// Final is a verdict about the final pod.
type Final struct {
	Verdict  string           `json:"verdict"` // allowed, warned or denied
	Findings []inject.Finding `json:"findings,omitempty"`
}

// summary returns the report in one sentence.
func (r *Report) summary() string {
	right := 0
	for i := range r.Templates {
		if c := r.Templates[i].Code; c.Succeeded() {
			right++
		}
	}
	with := ""
	if r.Final.Verdict == "warned" {
		with = ", with " + Plural(len(r.Final.Findings), "warning")
	}
	switch {
	case r.Unread && r.Object.Live && len(r.Gone) > 0:
		return "The pod was injected. Whether it is current is unknown."
	case r.Unread && r.Object.Live:
		return "According to its annotations, the pod was not injected. Which templates it should have is unknown."
	case r.Object.Live:
		return r.liveSummary(with)
	case isFalse(r.Called) && r.Final.Verdict == "denied":
		return "The API server would deny the pod, because it calls Pillion's validating webhook, but not the mutating one."
	case isFalse(r.Called):
		return "The API server does not call Pillion for this pod, so Pillion injects nothing."
	case r.Unread && !isFalse(r.Answered):
		return "Which templates the pod gets is unknown."
	case isFalse(r.Answered) && r.Final.Verdict == "denied":
		return "Pillion has no ready endpoint, so the API server would deny the pod."
	case isFalse(r.Answered):
		return "Pillion has no ready endpoint, so the pod would get nothing."
	case r.Final.Verdict == "denied":
		return "The API server would deny the pod."
	case len(r.Misfits) > 0:
		return "The API server would deny the injected pod."
	case right == 0 && r.incomplete:
		return fmt.Sprintf("The pod gets none of the known templates%s. Some are unknown: see the notes.", with)
	case right == 0:
		return fmt.Sprintf("The pod gets nothing%s.", with)
	case right == len(r.Templates):
		return fmt.Sprintf("The pod gets %s%s.", Plural(right, "template"), with)
	}
	return fmt.Sprintf("The pod gets %d of the %s%s.", right, Plural(len(r.Templates), "template"), with)
}

// liveSummary summarizes which injections an existing pod has and lacks.
func (r *Report) liveSummary(with string) string {
	n, failed, by := 0, 0, map[State]int{}
	for i := range r.Templates {
		if t := &r.Templates[i]; t.State != NotWanted {
			n++
			by[t.State]++
			if t.Code.Failed() && t.State == Missing {
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
		return fmt.Sprintf("The pod should have no templates, and has none%s.", with)
	case by[Current] == n:
		return fmt.Sprintf("The pod has everything that it should have: %s%s.", Plural(n, "template"), with)
	}
	also := ""
	if failed > 0 {
		also = fmt.Sprintf("; a new pod would lack %s too, so a restart does not help: fix this first", Plural(failed, "template"))
	}
	return fmt.Sprintf("The pod is not current: %s%s.", strings.Join(parts, ", "), also)
}

// summarizeRejection begins the summary with the fact that an API server rejects the pod as written. The rest of the report is then about
// the pod without the mistakes that cause this.
func (r *Report) summarizeRejection(rejected bool) {
	if r.Rejected = rejected; rejected {
		r.Summary = "The API server rejects the pod as written: see the notes. Apart from that: " + r.Summary
	}
}

// Outcome returns in a word or two what happens with a template of the report.
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

// Compare adds the running pods to the report about a new pod. If a new pod would lack a template, too, the running pods are not
// reported as lacking it.
func (r *Report) Compare(running *Running) {
	if r.Running = running; running == nil {
		return
	}
	gets := func(t Template, name string) bool {
		return t.Template == name && t.Code.Succeeded()
	}
	running.keepReasons(func(b Reason) bool {
		return b.State != Missing || slices.ContainsFunc(r.Templates, func(t Template) bool { return gets(t, b.Template) })
	})
}

// Fail adds why the workload cannot create its pods, if there is a reason. The rest of the report
// is then about a pod that could be created.
func (r *Report) Fail(why string, help Help) {
	if r.Failing = why; why == "" {
		return
	}
	begin := "It cannot create its pods. "
	if strings.HasPrefix(why, LosesPods) {
		begin = "It loses its pods. "
	}
	r.Summary = begin + strings.Replace(r.Summary, "The pod gets", "A pod would get", 1)
	if denial, known := ParseDenial(why, help); known {
		r.FailingHint, r.FailingCommand = denial.Hint, denial.Command
	}
}

// LosesPods is the beginning of the reason if a workload's selector does not match its pods any more, because of a label that a template
// adds.
const LosesPods = "it loses its pods"

// isFalse reports whether something is known to be false.
func isFalse(known *bool) bool { return known != nil && !*known }

// whyUnreached returns why Pillion does not process the pod, or "" if Pillion processes it or if that is
// unknown.
func (r *Report) whyUnreached() string {
	switch {
	case isFalse(r.Called):
		return "the API server does not call Pillion for the pod: " + notCalled(r.Webhooks)
	case isFalse(r.Answered):
		return "Pillion has no ready endpoint"
	}
	return ""
}
