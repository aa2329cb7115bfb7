// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/tree"
)

// The API server cuts every warning of a response to 256 runes when all
// together have more than 4096, which these never do: 16 * 256 = 4096. It asks
// for 120 in each where possible; what to do stands at the end of a sentence, so
// it is not cut there. Nor is it folded: kubectl does that, on a terminal.
const (
	maxWarning  = 256
	maxWarnings = 16
)

// What is put into audit annotations, and into errors and denials, has bounds: a
// sentence may quote what the pod's author wrote, and that may be 256 KiB.
const (
	maxAudit    = 512
	maxSentence = 1024
	maxName     = 256 // in the log: an API server's own are shorter
)

// encode is the answer, in the exchange's memory. v1 and v1beta1 have the same fields. A patch and its
// type stand there both or not at all; that is a rule of v1, as is that a
// validating webhook has none.
func encode(e *exchange) []byte {
	response := &admissionv1.AdmissionResponse{UID: types.UID(e.request.UID), Allowed: true}
	notes := e.scratch.notes[:0]
	switch {
	case e.webhook == webhookAdvise:
		response.Warnings = warnings(e.advice, "")
	case e.preview != nil:
		notes = e.shadowAudit(notes)
		response.Warnings = warnings(e.shadowWarnings(), inAuditLog)
	case e.verdict != nil:
		notes = e.verdict.AppendAudit(notes)
		judged(response, e.verdict)
	case e.result != nil:
		notes = patched(e, response, notes)
	}
	e.scratch.notes = notes
	e.buffers.answer = appendReview(e.buffers.answer[:0], e.request.version, response, notes)
	return e.buffers.answer
}

// patched is the answer about a new pod. An unsound patch is withheld: the pod
// continues as it is, and the validating webhook judges what that means.
func patched(e *exchange, response *admissionv1.AdmissionResponse, notes []inject.Note) []inject.Note {
	if e.result.Adds() {
		patch, err := e.result.AppendVerified(e.buffers.patch[:0], &e.scratch.verifier)
		e.buffers.patch = patch
		if errors.As(err, &e.withheld) {
			response.Warnings = warnings([]string{"nothing is injected because of a defect in Pillion, please report it: " + err.Error()}, "")
			return append(notes, inject.Note{Key: "patch_withheld", Text: err.Error()})
		}
		patchType := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &patchType
	}
	response.Warnings = warnings(e.result.Warnings(), inAuditLog)
	return e.result.AppendAudit(notes)
}

// appendReview writes an AdmissionReview that has this response and these audit
// annotations, as a JSON library would, in a twentieth of the time. Of the status
// it writes what [judged] sets. The annotations' values are bounded; their keys are
// names of templates and codes, which are valid as the second half of a key.
func appendReview(b []byte, version string, r *admissionv1.AdmissionResponse, notes []inject.Note) []byte {
	b = tree.AppendQuoted(append(b, `{"kind":"AdmissionReview","apiVersion":`...), version)
	b = tree.AppendQuoted(append(b, `,"response":{"uid":`...), string(r.UID))
	b = strconv.AppendBool(append(b, `,"allowed":`...), r.Allowed)
	if r.Result != nil {
		b = tree.AppendQuoted(append(b, `,"status":{"status":`...), r.Result.Status)
		b = tree.AppendQuoted(append(b, `,"message":`...), r.Result.Message)
		b = tree.AppendQuoted(append(b, `,"reason":`...), string(r.Result.Reason))
		b = strconv.AppendInt(append(b, `,"code":`...), int64(r.Result.Code), 10)
		b = append(b, '}')
	}
	if r.Patch != nil {
		b = appendBase64(append(b, `,"patch":"`...), r.Patch)
		b = tree.AppendQuoted(append(b, `","patchType":`...), string(*r.PatchType))
	}
	text, clipped := "", "" // many templates have the same reason
	for i, note := range notes {
		if i == 0 {
			b = append(b, `,"auditAnnotations":{`...)
		} else {
			b = append(b, ',')
		}
		if note.Text != text {
			text, clipped = note.Text, clip(note.Text, maxAudit)
		}
		if note.Key == string(inject.CodeNotRequested) {
			text, clipped = note.Text, note.Text // names of templates, and all of them
		}
		b = tree.AppendQuoted(append(tree.AppendQuoted(b, note.Key), ':'), clipped)
	}
	if len(notes) > 0 {
		b = append(b, '}')
	}
	if len(r.Warnings) > 0 {
		b = append(b, `,"warnings":[`...)
		for i, warning := range r.Warnings {
			if i > 0 {
				b = append(b, ',')
			}
			b = tree.AppendQuoted(b, warning)
		}
		b = append(b, ']')
	}
	return append(b, "}}"...)
}

// judged is the answer about a final pod: a denial has all findings in its one
// message, for a controller shows nothing else.
func judged(response *admissionv1.AdmissionResponse, v *inject.Verdict) {
	if !v.Denied {
		all := make([]string, len(v.Judged))
		for i := range v.Judged {
			all[i] = v.Judged[i].String()
		}
		response.Warnings = warnings(all, inAuditLog)
		return
	}
	response.Allowed = false
	response.Result = &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: clip(inject.Denial(v.Judged), maxSentence),
	}
}

// inAuditLog is where to find warnings that are too many.
const inAuditLog = "; the audit log has them"

// warnings makes the sentences fit for the API server, which drops an empty one
// and one with a control character without a word. Where says where the rest is.
func warnings(all []string, where string) []string {
	var fit []string
	seen := map[string]bool{"": true}
	for _, text := range all {
		if text = clip(text, maxWarning); !seen[text] {
			seen[text] = true
			fit = append(fit, text)
		}
	}
	if more := len(fit) - (maxWarnings - 1); more > 1 {
		fit = append(fit[:maxWarnings-1], fmt.Sprintf("and %d more warnings%s", more, where))
	}
	return fit
}

// clip makes text one line of at most limit runes. It ends at a word where one
// ends in the last third.
func clip(text string, limit int) string {
	if len(text) <= limit && strings.IndexFunc(text, misleads) < 0 {
		return strings.TrimSpace(text)
	}
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if misleads(r) {
			return ' '
		}
		return r
	}, text))
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	text = string(runes[:limit-1])
	if i := strings.LastIndexByte(text, ' '); i > 2*len(text)/3 {
		text = text[:i]
	}
	return strings.TrimRight(text, " ,;:") + "…"
}

// misleads reports whether a character has no place in a line of text.
func misleads(r rune) bool { return r == '\n' || r == '\t' || inject.Hidden(r) }

func (e *exchange) write(w http.ResponseWriter, r *http.Request) {
	header, body := w.Header(), e.answer
	header.Set("Content-Type", contentJSON)
	switch {
	case e.refused != nil:
		body = e.refused.statusBody()
		if e.refused.retryAfter != "" {
			header.Set("Retry-After", e.refused.retryAfter)
		}
		if e.refused.location != "" {
			header.Set("Location", e.refused.location)
		}
		if e.refused.location != "" || e.refused.retryAfter != "" && e.refused.status == http.StatusServiceUnavailable { // another replica may know more
			header.Set("Connection", "close")
		}
	case e.createAgain:
		header.Set("Connection", "close")
	}
	header.Set("Content-Length", strconv.Itoa(len(body))) // no chunks for the caller to put together
	w.WriteHeader(e.status())
	_, err := w.Write(body)
	if r.ProtoMajor > 1 && err == nil { // else a stream waits for its client when nobody counts it any more
		err = http.NewResponseController(w).Flush()
	}
	e.written = err == nil // a caller that is gone needs no answer
}

// statusBody is the refusal as the API server's client reads it: of most statuses
// it shows a sentence only if that is in a metav1.Status (TestAnswers in e2e).
func (r *refusal) statusBody() []byte {
	reason := map[int]metav1.StatusReason{
		http.StatusBadRequest:            metav1.StatusReasonBadRequest,
		http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
		http.StatusNotFound:              metav1.StatusReasonNotFound,
		http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
		http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
		http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
		http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError:   metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
		http.StatusTemporaryRedirect:     metav1.StatusReasonServiceUnavailable, // for who does not follow it
	}[r.status]
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(r.status), Reason: reason, Message: r.sentence,
	}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("a status that is no JSON: " + err.Error())
	}
	return append(text, '\n') // for people who read it on a terminal
}
