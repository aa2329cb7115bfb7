// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// PathShadow is the path of the webhook that reports on pods of shadow namespaces and changes nothing.
const PathShadow = "/shadow"

const (
	decidedWouldInject = "would_inject"
	decidedWouldDeny   = "would_deny"
)

// maxShadow is the length of a warning that the API server recommends, in runes.
const maxShadow = 120

// shadow reports what would happen to a pod of a shadow namespace if the namespace opted in. It allows the pod unchanged. If it does
// not know enough to predict that, it reports nothing.
var shadow = &endpoint{
	path:      PathShadow,
	name:      "shadow",
	caller:    authentication.Validating, // its webhook is in the same configuration
	levels:    podLevel,
	once:      true,
	decisions: okOutcomes(decidedWouldInject, decidedWouldDeny, decidedUnchanged),
	findings:  []inject.Code{inject.CodeUnknownParameter},
	general:   unknown,
	about:     (*admissionRequest).createsPod,
	answer: func(h *Handler, e *exchange, r *http.Request) (answer, *rejection) {
		req, rejected := h.aboutPod(e, r)
		if rejected != nil { // parameters that depend on the namespace's annotations would appear invalid
			return nil, nil
		}
		result, err := h.injector(e).Inject(req)
		if err != nil || awaitsAccount(&req, result) != nil {
			return nil, goneRejection(r)
		}
		req.Pod, req.Scratch = result.Injected(), nil // the scratch still contains the result
		verdict, err := h.judge(e).Judge(req)
		if err != nil {
			return nil, goneRejection(r)
		}
		return shadowed{injected{result}, verdict}, goneRejection(r)
	},
}

// shadowed is the answer about a pod of a shadow namespace: the result of an injection that does not take place, and
// the verdict about the pod that would result.
type shadowed struct {
	injected
	verdict *inject.Verdict
}

func (s shadowed) decision() string {
	switch {
	case s.verdict.Denied:
		return decidedWouldDeny
	case s.Adds():
		return decidedWouldInject
	}
	return decidedUnchanged
}

func (s shadowed) fillResponse(_ *exchange, response *admissionv1.AdmissionResponse, notes []inject.Note) []inject.Note {
	response.Warnings = clipWarnings(s.shadowWarnings(), inAuditLog)
	return s.shadowNotes(notes)
}

// shadowWarnings returns first what would happen to the pod, and then what is wrong
// with its annotations. A list of names that is too long is cut.
func (s shadowed) shadowWarnings() []string {
	var all, names []string
	for i := range s.Decisions {
		if d := &s.Decisions[i]; d.Code == inject.CodeInjected {
			names = append(names, d.Template)
		}
	}
	would := map[string]string{decidedWouldDeny: "be denied", decidedWouldInject: "get " + strings.Join(names, ", ")}[s.decision()]
	if would != "" {
		all = append(all, clipLine(fmt.Sprintf("with the namespace label %s=%s the pod would %s", inject.LabelInject, inject.Enabled, would), maxShadow-len("shadow: ")))
	}
	all = append(all, s.Warnings()...)
	for i := range s.verdict.Judged {
		all = append(all, s.verdict.Judged[i].String()) // repeated ones are dropped
	}
	for i := range all {
		all[i] = "shadow: " + all[i]
	}
	return all
}

// shadowNotes appends the result's audit annotations, reworded for a shadow namespace, and the
// verdict. The webhook is a validating one, which the API server calls only once. So the annotations of injected and of present
// templates may differ, unlike in [inject.Result.AppendAudit].
func (s shadowed) shadowNotes(notes []inject.Note) []inject.Note {
	notes = s.AppendAudit(notes)
	for i := range s.Decisions {
		d := &s.Decisions[i]
		k := slices.IndexFunc(notes, func(n inject.Note) bool { return n.Key == d.Template })
		switch d.Code {
		case inject.CodeInjected:
			notes[k].Text = "would be " + notes[k].Text
		case inject.CodePresent:
			notes[k].Text = string(d.Code) + ": " + d.Sentence()
		}
	}
	verdict := s.verdict.AppendAudit(nil)
	last := verdict[len(verdict)-1]
	last.Text = "would be " + last.Text
	if s.verdict.Denied {
		last.Text += ": " + inject.Denial(s.verdict.Judged)
	}
	return append(notes, last)
}
