// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
)

const webhookShadow = "shadow"

// maxShadow is as long as the API server asks warnings to be, in runes.
const maxShadow = 120

// shadow finds out what would become of a pod in a namespace that is not opted in
// yet. The pod stays as it is: nothing is added, and nothing is refused; and where
// what is asked cannot be known, nothing is said.
func (h *Handler) shadow(e *exchange, r *http.Request) {
	namespace, err := h.Namespaces.Namespace(e.request.Namespace)
	if err != nil {
		return // without its annotations parameters would be wrong that are not
	}
	req := e.aboutPod(r, namespace)
	result, err := h.Injector().Inject(req)
	if err != nil {
		return
	}
	req.Pod, req.Scratch = result.Injected(), nil // which the result is in
	verdict, err := h.Judge().Judge(req)
	if err != nil {
		return
	}
	e.result, e.preview = result, verdict
}

// shadowWarnings say first what would become of the pod, and then what is wrong
// with what it asks for. Names are left out at the end of what is too long.
func (e *exchange) shadowWarnings() []string {
	var all, names []string
	for i := range e.result.Decisions {
		if d := &e.result.Decisions[i]; d.Code == inject.CodeInjected {
			names = append(names, d.Template)
		}
	}
	would := map[string]string{decidedWouldDeny: "be refused", decidedWouldInject: "get " + strings.Join(names, ", ")}[e.decision()]
	if would != "" {
		all = append(all, clip(fmt.Sprintf("with the namespace label %s=%s the pod would %s", inject.LabelInject, inject.Enabled, would), maxShadow-len("shadow: ")))
	}
	all = append(all, e.result.Warnings()...)
	for i := range e.preview.Judged {
		all = append(all, e.preview.Judged[i].String()) // what is there already is told once
	}
	for i := range all {
		all[i] = "shadow: " + all[i]
	}
	return all
}

// shadowAudit has the result's audit annotations in words that are true here, and
// the verdict. A validating webhook is asked once, so injected and present may
// read differently.
func (e *exchange) shadowAudit(notes []inject.Note) []inject.Note {
	notes = e.result.AppendAudit(notes)
	for i := range e.result.Decisions {
		d := &e.result.Decisions[i]
		k := slices.IndexFunc(notes, func(n inject.Note) bool { return n.Key == d.Template })
		switch d.Code {
		case inject.CodeInjected:
			notes[k].Text = "would be " + notes[k].Text
		case inject.CodePresent:
			notes[k].Text = string(d.Code) + ": " + d.Sentence()
		}
	}
	verdict := e.preview.AppendAudit(nil)
	last := verdict[len(verdict)-1]
	last.Text = "would be " + last.Text
	if e.preview.Denied {
		last.Text += ": " + inject.Denial(e.preview.Judged)
	}
	return append(notes, last)
}
