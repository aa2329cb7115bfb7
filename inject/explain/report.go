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
	// Called reports whether the API server asks Pillion about this pod, and Answered
	// whether anybody is there to answer; absent if that is unknown.
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
	// Running is what the workload's running pods have; nil if that is unknown.
	Running *Running `json:"running,omitempty"`
	// Patch is what the mutating webhook adds, as RFC 6902.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Final is what the validating webhook says then.
	Final Final `json:"final"`
	// Misfits are why the API server rejects the injected pod, and not the pod as it is.
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

// summary is the report in one sentence.
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
	case r.Object.Live:
		return r.liveSummary(with)
	case no(r.Called):
		return "The API server does not call Pillion for this pod, so Pillion injects nothing."
	case no(r.Answered) && r.Final.Verdict == "denied":
		return "Pillion has no ready endpoint, so the API server would deny the pod."
	case no(r.Answered):
		return "Pillion has no ready endpoint, so the pod would get nothing."
	case r.Final.Verdict == "denied":
		return "The API server would deny the pod."
	case len(r.Misfits) > 0:
		return "The API server would deny the injected pod."
	case right == 0:
		return fmt.Sprintf("The pod gets nothing%s.", with)
	case right == len(r.Templates):
		return fmt.Sprintf("The pod gets %s%s.", Plural(right, "template"), with)
	}
	return fmt.Sprintf("The pod gets %d of the %s%s.", right, Plural(len(r.Templates), "template"), with)
}

// liveSummary counts what a pod that exists has of what it should have.
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

// Compare adds what runs. What a new pod would not have either is not missing in those that run.
func (r *Report) Compare(running *Running) {
	if r.Running = running; running == nil {
		return
	}
	gets := func(t Template, name string) bool {
		return t.Template == name && t.Code.Succeeded()
	}
	running.keep(func(b Behind) bool {
		return b.State != Missing || slices.ContainsFunc(r.Templates, func(t Template) bool { return gets(t, b.Template) })
	})
}

func no(known *bool) bool { return known != nil && !*known }

// unreached reports why Pillion does not process the pod; "" if it does, or if that is unknown.
func (r *Report) unreached() string {
	switch {
	case no(r.Called):
		return "the API server does not call Pillion for the pod"
	case no(r.Answered):
		return "Pillion has no ready endpoint"
	}
	return ""
}
