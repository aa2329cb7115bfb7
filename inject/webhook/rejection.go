// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// rejection is the HTTP error that a request gets instead of an answer.
type rejection struct {
	status     int
	sentence   string
	retryAfter string                // seconds; "" if a retry is useless
	location   string                // of a redirect
	caller     authentication.Reason // why the caller is not authenticated, or ""
	shed       string                // why there is no capacity for the request, or ""
}

func newRejection(status int, format string, args ...any) *rejection {
	return &rejection{status: status, sentence: clipLine(fmt.Sprintf(format, args...), maxSentence)}
}

func tooLate() *rejection {
	return newRejection(http.StatusServiceUnavailable, "the request did not arrive before the caller's timeout")
}

// redactedSentence returns the sentence without the part that may quote the request.
func (r *rejection) redactedSentence() string {
	if r.status != http.StatusBadRequest {
		return r.sentence
	}
	before, _, _ := strings.Cut(r.sentence, ": ")
	return before
}

// statusBody returns a metav1.Status. For most HTTP statuses, the API server shows the
// sentence only if it is in one (TestAnswers in e2e).
func (r *rejection) statusBody() []byte {
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
		http.StatusTemporaryRedirect:     metav1.StatusReasonServiceUnavailable, // for clients that do not follow it
	}[r.status]
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(r.status), Reason: reason, Message: r.sentence,
	}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("a status cannot be encoded: " + err.Error())
	}
	return append(text, '\n') // for terminals
}
