// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// PathValidate is the path of the validating webhook, which judges final pods.
const PathValidate = "/validate"

var validate = &endpoint{
	path:   PathValidate,
	name:   "validate",
	caller: authentication.Validating,
	levels: finalLevel,
	judges: true,
	decisions: append(okOutcomes("allowed", decidedWarned, decidedDenied),
		outcome{decidedDoubted, http.StatusTemporaryRedirect}),
	findings: slices.DeleteFunc(inject.FindingCodes(), func(code inject.Code) bool {
		return code == inject.CodeUnknownTemplate // it is about no template in use
	}),
	general: unknown,
	about:   (*admissionRequest).createsPod,
	answer: func(h *Handler, e *exchange, r *http.Request) (answer, *rejection) {
		req, rejected := h.aboutPod(e, r)
		if rejected != nil {
			return nil, rejected
		}
		verdict, err := h.judge(e).Judge(req)
		if err != nil {
			return nil, notAPod(err)
		}
		if later := awaitsAccount(&req, verdict.Result); later != nil {
			return nil, later
		}
		h.recent.keepFinal(e.request, h.injector(e).For(e.request.Namespace).Set().Revision, verdict.Denied)
		if verdict.Doubt {
			rejected = callAgain(r, verdict)
		}
		return judged{verdict}, rejected
	},
}

// judged is the answer about a final pod.
type judged struct{ *inject.Verdict }

func (j judged) decision() string { return j.Word() }

// fillResponse denies with all findings in one message, because controllers show nothing else.
func (j judged) fillResponse(e *exchange, response *admissionv1.AdmissionResponse, notes []inject.Note) []inject.Note {
	e.hangUp = j.CreateAgain() // so that the next pod may reach another replica, for which it may be right
	if j.Denied {
		response.Allowed = false
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: clipLine(inject.Denial(j.Judged), maxSentence),
		}
	} else {
		all := make([]string, len(j.Judged))
		for i := range j.Judged {
			all[i] = j.Judged[i].String()
		}
		response.Warnings = clipWarnings(all, inAuditLog)
	}
	return j.AppendAudit(notes)
}

func (j judged) pod() *inject.Identity        { return &j.Pod }
func (j judged) decisions() []inject.Decision { return nil }
func (j judged) findings() []inject.Finding   { return j.Judged }

// mostCalls is the maximum number of calls of the validating webhook for one pod. If two
// replicas have different templates, each injects half of the pods. For one of 32 pods, the replica that did not inject it answers
// all five calls. If that replica has the older templates, which is so for half of these pods, it denies a valid pod: one of 64. The
// controller creates such a pod again.
const mostCalls = 5

// paramCall is the parameter of the URL that counts the calls. The calls reach different replicas, so no replica can count them.
const paramCall = "call"

// callAgain returns a redirect to this webhook, or nil if the webhook was called [mostCalls] times, so that the last call is
// answered with a verdict. The API server follows the redirect with the same body, as Go's http.Client does, within
// the webhook's timeout. It uses a new connection, for which the Service selects a replica anew.
func callAgain(r *http.Request, v *inject.Verdict) *rejection {
	query := r.URL.Query()
	call, err := strconv.Atoi(query.Get(paramCall))
	if err != nil {
		call = 1
	}
	if call < 1 || call >= mostCalls {
		return nil
	}
	query.Set(paramCall, strconv.Itoa(call+1))
	again := newRejection(http.StatusTemporaryRedirect, "%s (another replica may have other templates; follow the redirect)", inject.Denial(v.Judged))
	again.location = (&url.URL{RawQuery: query.Encode()}).String()
	return again
}
