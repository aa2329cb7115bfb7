// SPDX-License-Identifier: Apache-2.0

// Package audit summarizes audit logs of API servers (audit.k8s.io/v1): the decisions of Pillion, webhooks that changed
// pods in a second round, patches that are applied again and again, and pods that were accepted while Pillion did not
// answer.
package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The annotations of the API server's mutating and validating dispatchers, except for "round_N_index_M".
const (
	mutation       = "mutation.webhook.admission.k8s.io/round_"
	patch          = "patch.webhook.admission.k8s.io/round_"
	openMutating   = "failed-open.mutation.webhook.admission.k8s.io/"
	openValidating = "failed-open.validating.webhook.admission.k8s.io/"

	own = ".pillion.dev" // how the names of Pillion's webhooks end
)

const (
	// loopAt is the number of equal patches that count as a loop. Two may come from two users.
	loopAt = 3
	// maxPatches bounds what is remembered, at some 100 bytes each.
	maxPatches = 10_000
)

// ErrHalf is the error of [Log.Add] for an incomplete line, for example the last line of a log that is
// still being written.
var ErrHalf = errors.New("the line is not complete")

var errNone = errors.New("not an Event of audit.k8s.io/v1")

// event has the relevant fields of an audit.k8s.io/v1 Event.
type event struct {
	Kind, APIVersion, Stage, Verb, RequestURI string

	ObjectRef      struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus struct{ Code int }
	RequestObject  json.RawMessage // for a patch, an array
	ResponseObject struct{ Metadata metadata }
	Annotations    map[string]string
}

type metadata struct{ Name, GenerateName, UID string }

// Log counts events. Its size depends on the number of namespaces, webhooks and templates, not
// on the number of events.
type Log struct {
	events  int
	report  Report
	counts  map[[5]string]*Count // by list, namespace, webhook, about and reason
	patches map[[sha256.Size]byte]int
}

// New returns an empty log.
func New() *Log {
	return &Log{counts: map[[5]string]*Count{}, patches: map[[sha256.Size]byte]int{}}
}

// Events returns the number of events.
func (l *Log) Events() int { return l.events }

// Add parses and counts a line. It ignores other stages and other resources without an error.
func (l *Log) Add(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); !ok {
			return errNone
		}
		if err.Error() == "unexpected end of JSON input" { // the error has no type
			return ErrHalf
		}
		return fmt.Errorf("not JSON: %w", err)
	}
	if e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" {
		return errNone
	}
	l.events++
	ref := e.ObjectRef
	switch {
	case ref.Resource != "pods", ref.APIGroup != "", ref.Subresource != "",
		e.Stage != "ResponseComplete" && e.Stage != "Panic",
		e.Verb != "create" && e.Verb != "update" && e.Verb != "patch":
	case strings.Contains(e.RequestURI, "dryRun="):
		l.report.DryRuns++
	default:
		l.report.Requests++
		l.countEvent(&e)
	}
	return nil
}

func (l *Log) countEvent(e *event) {
	asked := 0
	patched := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		value := e.Annotations[key]
		webhook, about, _ := strings.Cut(key, "/")
		round, mutating := strings.CutPrefix(key, mutation)
		switch {
		case strings.HasSuffix(webhook, own):
			l.countDecision(e, webhook, about, value)
			asked = 1
		case mutating:
			l.countMutation(e, round, value, patched)
		case strings.HasPrefix(key, openMutating), strings.HasPrefix(key, openValidating):
			if strings.HasSuffix(value, own) && e.ResponseStatus.Code < 300 {
				l.countRequest(failedOpen, e, value, "", "")
			}
		}
	}
	l.report.Decided += asked
}

// countDecision counts Pillion's annotation about a template or the pod. The key may also be a code,
// which cannot be the name of a template. Then the code is about no template, or about the
// templates that the value lists.
func (l *Log) countDecision(e *event, webhook, about, value string) {
	names, reason := []string{about}, reasonCode(strings.TrimPrefix(value, "would be ")) // from a shadow namespace
	switch {
	case about == "not_requested":
		names, reason = strings.Split(strings.TrimSuffix(value, "…"), ", "), about
	case strings.HasPrefix(about, "unknown_"):
		names, reason = []string{""}, about
	}
	for _, name := range names {
		l.countRequest(decisions, e, webhook, name, reason)
	}
}

// countMutation counts a change by a webhook in a round ("1_index_0"). If a webhook applies the same
// patch twice in one request, or three times to one pod, the patch was undone in between, or
// adds the same thing again.
func (l *Log) countMutation(e *event, round, value string, patched map[string]bool) {
	var call struct {
		Configuration, Webhook string
		Mutated                bool
	}
	if json.Unmarshal([]byte(value), &call) != nil || !call.Mutated {
		return
	}
	by := call.Configuration + "/" + call.Webhook
	if !strings.HasPrefix(round, "0_") {
		l.countRequest(secondRounds, e, by, "", "")
	}
	text := e.Annotations[patch+round]
	if text == "" {
		return
	}
	if patched[text] {
		l.countRequest(loops, e, by, "", "")
		return
	}
	patched[text] = true
	uid := e.ResponseObject.Metadata.UID           // another pod may have the same name
	if uid == "" || e.ResponseStatus.Code != 200 { // 201: created
		return
	}
	key := sha256.Sum256([]byte(uid + "/" + text))
	if _, ok := l.patches[key]; !ok && len(l.patches) >= maxPatches {
		clear(l.patches) // a loop that goes on will be found again
	}
	if l.patches[key]++; l.patches[key] == loopAt {
		l.countRequest(loops, e, by, "", "")
	}
}

// reasonCode returns the beginning of Pillion's sentence: "injected", "missing at /spec/...".
func reasonCode(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
	if end < 0 {
		end = len(text)
	}
	return cmp.Or(text[:end], "unknown")
}

func (l *Log) countRequest(list string, e *event, webhook, about, reason string) {
	key := [...]string{list, e.ObjectRef.Namespace, webhook, about, reason}
	if l.counts[key] == nil {
		l.counts[key] = &Count{key[1], webhook, about, reason, 0, e.podName()}
	}
	l.counts[key].Requests++
}

// podName returns the pod's name, or its generateName if the API server chooses the name.
func (e *event) podName() string {
	name := cmp.Or(e.ObjectRef.Name, e.ResponseObject.Metadata.Name)
	if name == "" {
		var sent struct{ Metadata metadata }
		if json.Unmarshal(e.RequestObject, &sent) == nil {
			name = sent.Metadata.GenerateName + "*"
		}
	}
	return cmp.Or(name, "*")
}

// Report summarizes audit logs. Its JSON is a stable format for scripts: fields may be added, but not
// renamed or removed.
type Report struct {
	Summary   string  `json:"summary"`   // one sentence
	Requests  int     `json:"requests"`  // requests that created or changed pods, or were denied
	Decided   int     `json:"decided"`   // requests about which Pillion decided
	DryRuns   int     `json:"dryRuns"`   // dry runs, which are not counted in the other fields
	Decisions []Count `json:"decisions"` // Pillion's decisions
	// The following counts are about webhooks, and have no about and no reason. The webhooks in FailedOpen are Pillion's. In the other
	// lists, a webhook is named CONFIGURATION/WEBHOOK.
	SecondRounds []Count `json:"secondRounds"` // webhooks that changed pods when they were called again
	Loops        []Count `json:"loops"`        // webhooks that applied the same patch to the same pod again
	FailedOpen   []Count `json:"failedOpen"`   // webhooks that could not be called, so that pods passed without them
}

// Count is the number of requests with the same result.
type Count struct {
	Namespace string `json:"namespace"`
	Webhook   string `json:"webhook"`
	About     string `json:"about,omitempty"`  // a template, or "final_verdict"
	Reason    string `json:"reason,omitempty"` // the code that the text begins with
	Requests  int    `json:"requests"`
	Example   string `json:"example"` // a pod's name
}

// The lists of the report.
const (
	decisions    = "Decisions of Pillion:"
	secondRounds = "Changed pods again, after a later webhook had changed them:"
	loops        = "Loops: the same patch for the same pod again, so something else removes it:"
	failedOpen   = "Could not be called, and pods were accepted:"
)

// Report returns the summary in a stable order.
func (l *Log) Report() *Report {
	r := l.report
	r.Decisions, r.SecondRounds, r.Loops, r.FailedOpen = []Count{}, []Count{}, []Count{}, []Count{}
	lists := map[string]*[]Count{decisions: &r.Decisions, secondRounds: &r.SecondRounds, loops: &r.Loops, failedOpen: &r.FailedOpen}
	for _, key := range slices.SortedFunc(maps.Keys(l.counts), func(a, b [5]string) int { return slices.Compare(a[:], b[:]) }) {
		*lists[key[0]] = append(*lists[key[0]], *l.counts[key])
	}
	r.Summary = fmt.Sprintf("Requests for pods: %d; with decisions of Pillion: %d; dry runs, not counted: %d.", r.Requests, r.Decided, r.DryRuns)
	switch {
	case l.events == 0:
		r.Summary = "No events."
	case r.Requests+r.DryRuns == 0:
		r.Summary = fmt.Sprintf("Events: %d, but none is about a pod; the audit policy must include pods.", l.events)
	case !r.Bad():
		r.Summary = "No problems. " + r.Summary
	}
	return &r
}

// Bad reports whether there is a loop, a pod that was accepted without Pillion, or a pod that
// Pillion changed a second time.
func (r *Report) Bad() bool {
	return len(r.Loops)+len(r.FailedOpen) > 0 || slices.ContainsFunc(r.SecondRounds, func(c Count) bool { return strings.HasSuffix(c.Webhook, own) })
}

// Text returns the report for users, in lines of any width. It may contain any string from the log.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(r.Summary + "\n")
	for _, list := range []struct {
		title  string
		counts []Count
	}{{decisions, r.Decisions}, {secondRounds, r.SecondRounds}, {loops, r.Loops}, {failedOpen, r.FailedOpen}} {
		for i, c := range list.counts {
			if i == 0 {
				b.WriteString("\n" + list.title + "\n")
			}
			what := strings.Join(strings.Fields(c.Namespace+" "+c.Webhook+" "+c.About+" "+c.Reason), " ")
			line := fmt.Sprintf("  %s: %d, such as %s", what, c.Requests, strings.Join(strings.Fields(c.Example), " "))
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
