// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// encodeAnswer returns the AdmissionReview with the answer, as JSON in the exchange's memory. The fields are the same in v1 and v1beta1.
// An answer must have a patch and its type, or neither (a rule of v1). Only answers of the mutating webhook have them.
func encodeAnswer(e *exchange) []byte {
	response := &admissionv1.AdmissionResponse{UID: types.UID(e.request.UID), Allowed: true}
	notes := e.scratch.notes[:0]
	e.scratch.patch = e.scratch.patch[:0]
	if e.answer != nil {
		notes = e.answer.fillResponse(e, response, notes)
	}
	e.scratch.notes = notes
	e.buffers.answer = appendReview(e.buffers.answer[:0], e.request.version, response, notes)
	return e.buffers.answer
}

// roomAround is the usual size of an answer without its patch.
const roomAround = 1 << 10

// appendReview appends an AdmissionReview with this response and these audit
// annotations. The result is that of a JSON library, in a twentieth of the time. Of the status,
// it writes only the fields that [judged] and [linted] set. It bounds the values of the annotations. Their keys need no check: they are
// names of templates and codes, which are valid as the second half of a key.
func appendReview(b []byte, version string, r *admissionv1.AdmissionResponse, notes []inject.Note) []byte {
	b = jsontree.AppendQuoted(append(b, `{"kind":"AdmissionReview","apiVersion":`...), version)
	b = jsontree.AppendQuoted(append(b, `,"response":{"uid":`...), string(r.UID))
	b = strconv.AppendBool(append(b, `,"allowed":`...), r.Allowed)
	if r.Result != nil {
		b = jsontree.AppendQuoted(append(b, `,"status":{"status":`...), r.Result.Status)
		b = jsontree.AppendQuoted(append(b, `,"message":`...), r.Result.Message)
		b = jsontree.AppendQuoted(append(b, `,"reason":`...), string(r.Result.Reason))
		if r.Result.Details != nil {
			details, _ := json.Marshal(r.Result.Details) // cannot fail
			b = append(append(b, `,"details":`...), details...)
		}
		b = strconv.AppendInt(append(b, `,"code":`...), int64(r.Result.Code), 10)
		b = append(b, '}')
	}
	if r.Patch != nil {
		b = slices.Grow(b, base64.StdEncoding.EncodedLen(len(r.Patch))+roomAround) // once, and not much more
		b = appendBase64(append(b, `,"patch":"`...), r.Patch)
		b = jsontree.AppendQuoted(append(b, `","patchType":`...), string(*r.PatchType))
	}
	text, clipped := "", "" // many templates often have the same reason
	for i, note := range notes {
		if i == 0 {
			b = append(b, `,"auditAnnotations":{`...)
		} else {
			b = append(b, ',')
		}
		if note.Text != text {
			text, clipped = note.Text, clipLine(note.Text, maxAudit)
		}
		if note.Key == string(inject.CodeNotRequested) {
			text, clipped = note.Text, note.Text // a list of templates is not clipped
		}
		b = jsontree.AppendQuoted(append(jsontree.AppendQuoted(b, note.Key), ':'), clipped)
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
			b = jsontree.AppendQuoted(b, warning)
		}
		b = append(b, ']')
	}
	return append(b, "}}"...)
}
