// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answerOutcome is what becomes of a pod because of an answer.
type answerOutcome struct {
	// failed: the call failed, for a reason with this text. The failure policy decides: Fail gives the status 500,
	// Ignore lets the pod through unchanged.
	failed string
	// status, reason and text are those of the error under both policies; a status of 0 is none.
	status int
	reason metav1.StatusReason
	text   string
	// patched: the pod that is created has the patch.
	patched bool
}

func failed(text string) answerOutcome { return answerOutcome{failed: text} }

func errorWith(status int, reason metav1.StatusReason, text string) answerOutcome {
	return answerOutcome{status: status, reason: reason, text: text}
}

// answer writes what a webhook answers to a review.
type answer func(http.ResponseWriter, *admissionv1.AdmissionReview)

// answerCase is an answer that a webhook may give, and what the API server makes of it.
type answerCase struct {
	name   string
	answer answer
	// at is the address to call if that is the case.
	at                   string
	mutating, validating answerOutcome
}

// answerCases is the table that DESIGN.md section 8 and Pillion's failure policies rest on: which answers the failure
// policy Ignore forgives, and which make the request fail under both policies.
func answerCases(t *testing.T) []answerCase {
	t.Helper()
	return slices.Concat(acceptedCases(), deniedCases(), brokenCases(), httpCases(), statusCases(), []answerCase{
		unreachable("nothing listens", nowhere().URL, "connect: connection refused"),
		unreachable("expired certificate", tlsServer(t, -time.Hour).URL, "x509: certificate has expired"),
		unreachable("certificate for another host", strings.Replace(tlsServer(t, time.Hour).URL, "127.0.0.1", "localhost", 1), "x509: certificate is"),
		unreachable("no TLS", strings.Replace(plainServer(t).URL, "http:", "https:", 1), "server gave HTTP response to HTTPS client"),
	})
}

// both is a case that is the same for both kinds of webhooks.
func both(name string, answer answer, want answerOutcome) answerCase {
	return answerCase{name: name, answer: answer, mutating: want, validating: want}
}

// patches is a case of a patch, which a validating webhook must not answer with.
func patches(name, patch string, mutating answerOutcome) answerCase {
	return answerCase{name: name, answer: reply(withPatch(patch)), mutating: mutating, validating: failed("validating webhook may not return response.patch")}
}

// unreachable is a case in which the API server cannot call the webhook.
func unreachable(name, at, text string) answerCase {
	return answerCase{name: name, at: at, mutating: failed(text), validating: failed(text)}
}

// acceptedCases let the pod through, under both policies.
func acceptedCases() []answerCase {
	var allowed, patched answerOutcome
	patched.patched = true
	return []answerCase{
		both("allowed", reply(), allowed),
		both("status 201", withStatus(http.StatusCreated, reply()), allowed),
		both("status 206", withStatus(http.StatusPartialContent, reply()), allowed),
		both("status 307", withHeader("Location", "/allowed", withStatus(http.StatusTemporaryRedirect, body(""))), allowed), // goes there with the review
		both("content type text plain", withHeader("Content-Type", "text/plain", reply()), allowed),
		both("a status although allowed", reply(func(r *admissionv1.AdmissionReview) {
			r.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: "no"}
		}), allowed),
		both("three megabytes", reply(func(r *admissionv1.AdmissionReview) { r.Response.Warnings = []string{strings.Repeat("a", 3<<20)} }), allowed),
		patches("patch", `[{"op":"add","path":"/metadata/labels/patched","value":"yes"}]`, patched),
		patches("empty patch", `[]`, allowed),
		patches("unknown field", `[{"op":"add","path":"/spec/noSuchField","value":1},{"op":"add","path":"/metadata/labels/patched","value":"yes"}]`, patched),
	}
}

// deniedCases are errors under both policies: denials, and patches that cannot be used, because the call itself went well.
func deniedCases() []answerCase {
	const internal = metav1.StatusReasonInternalError
	invalidPod := errorWith(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `spec.dnsPolicy: Unsupported value: "Sometimes"`)
	return []answerCase{
		both("denied", reply(func(r *admissionv1.AdmissionReview) { r.Response.Allowed = false }),
			errorWith(http.StatusBadRequest, "", `denied the request without explanation`)),
		both("denied with a status", reply(func(r *admissionv1.AdmissionReview) {
			r.Response.Allowed = false
			r.Response.Result = &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not here"}
		}), errorWith(http.StatusForbidden, metav1.StatusReasonForbidden, `denied the request: not here`)),
		patches("patch to a missing parent", `[{"op":"add","path":"/spec/noSuchList/-","value":1}]`, errorWith(500, internal, "noSuchList")),
		patches("patch behind the end of a list", `[{"op":"add","path":"/spec/containers/9","value":{"name":"a"}}]`, errorWith(500, internal, "index")),
		patches("patch with a test that fails", `[{"op":"test","path":"/metadata/name","value":"other"}]`, errorWith(500, internal, "testing value /metadata/name failed")),
		patches("patch that removes what is not there", `[{"op":"remove","path":"/spec/noSuchField"}]`, errorWith(500, internal, "noSuchField")),
		patches("patch with another type", `[{"op":"add","path":"/spec/hostNetwork","value":"yes"}]`, errorWith(500, internal, "hostNetwork")),
		patches("patch that makes the pod invalid", `[{"op":"add","path":"/spec/dnsPolicy","value":"Sometimes"}]`, invalidPod),
	}
}

// brokenCases are answers that break the contract, which is a call that failed.
func brokenCases() []answerCase {
	return []answerCase{
		both("another uid", reply(func(r *admissionv1.AdmissionReview) { r.Response.UID = "another" }), failed(`expected response.uid=`)),
		both("no uid", reply(func(r *admissionv1.AdmissionReview) { r.Response.UID = "" }), failed(`expected response.uid=`)),
		both("no response", reply(func(r *admissionv1.AdmissionReview) { r.Response = nil }), failed("webhook response was absent")),
		both("another kind", reply(func(r *admissionv1.AdmissionReview) { r.Kind = "Status" }), failed("converting (v1.Status) to (v1.AdmissionReview)")),
		both("no kind", reply(func(r *admissionv1.AdmissionReview) { r.Kind = "" }), failed("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview")),
		both("another version", reply(func(r *admissionv1.AdmissionReview) { r.APIVersion = "admission.k8s.io/v1beta1" }), failed("converting (v1beta1.AdmissionReview) to (v1.AdmissionReview)")),
		both("unknown version", reply(func(r *admissionv1.AdmissionReview) { r.APIVersion = "admission.k8s.io/v9" }), failed(`no kind "AdmissionReview" is registered for version "admission.k8s.io/v9"`)),
		{
			name: "patch without its type", answer: reply(withPatch("[]"), func(r *admissionv1.AdmissionReview) { r.Response.PatchType = nil }),
			mutating: failed("webhook returned response.patch but not response.patchType"), validating: failed("validating webhook may not return response.patch"),
		},
		{
			name: "type without its patch", answer: reply(withPatch("")),
			mutating: failed("webhook returned response.patchType but not response.patch"), validating: failed("validating webhook may not return response.patchType"),
		},
		patches("garbage as patch", `garbage`, failed("received undecodable patch in webhook response")),
		{
			name: "unknown type of patch", answer: reply(withPatch(`[{"op":"add","path":"/metadata/labels/patched","value":"yes"}]`), func(r *admissionv1.AdmissionReview) {
				r.Response.PatchType = new(admissionv1.PatchType("MergePatch"))
			}),
			mutating: failed(`unsupported patch type "MergePatch"`), validating: failed("validating webhook may not return response.patch"),
		},
	}
}

// httpCases are answers that are no review, which is a call that failed too.
func httpCases() []answerCase {
	return []answerCase{
		both("empty body", body(""), failed("0-length response with status code: 200")),
		both("garbage", body("garbage"), failed("couldn't get version/kind; json parse error")),
		both("half an answer", body(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{`), failed("unexpected end of JSON input")),
		both("status 204", withStatus(http.StatusNoContent, body("")), failed("0-length response with status code: 204")),
		both("status 302", withHeader("Location", "/allowed", withStatus(http.StatusFound, body(""))), failed(`an error on the server ("GET without an AdmissionReview")`)),
		both("status 404", withStatus(http.StatusNotFound, reply()), failed("failed to call webhook: the server could not find the requested resource")),
		both("status 500", withStatus(http.StatusInternalServerError, reply()), failed("failed to call webhook: an error on the server")),
		both("status 400 in words", withHeader("Content-Type", "text/plain", withStatus(http.StatusBadRequest, body("a sentence"))), failed("the server rejected our request for an unknown reason")),
		both("status 413 in words", withHeader("Content-Type", "text/plain", withStatus(http.StatusRequestEntityTooLarge, body("a sentence"))), failed("status code 413 but did not return more information")),
		both("connection is cut", func(http.ResponseWriter, *admissionv1.AdmissionReview) { panic(http.ErrAbortHandler) }, failed(": EOF")),
	}
}

// statusCases are the statuses that Pillion rejects a request with. The API server repeats the sentence of each, because
// it is in a Status: of a sentence in plain text it repeats few (see "status 400 in words").
func statusCases() []answerCase {
	var all []answerCase
	for _, code := range []int{400, 401, 405, 413, 415, 429, 500, 503} {
		text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the sentence of %[1]d","code":%[1]d}`, code)
		want := failed(fmt.Sprint("failed to call webhook: the sentence of ", code))
		all = append(all, answerCase{name: fmt.Sprint("status ", code, " in a Status"), answer: withStatus(code, body(text)), mutating: want, validating: want})
	}
	return all
}

// reply is an answer that allows, with changes.
func reply(changes ...func(*admissionv1.AdmissionReview)) answer {
	return func(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
		answer := *review
		answer.Request, answer.Response = nil, &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		for _, change := range changes {
			change(&answer)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}
}

func withPatch(patch string) func(*admissionv1.AdmissionReview) {
	return func(r *admissionv1.AdmissionReview) {
		r.Response.Patch, r.Response.PatchType = []byte(patch), new(admissionv1.PatchTypeJSONPatch)
	}
}

func body(text string) answer {
	return func(w http.ResponseWriter, _ *admissionv1.AdmissionReview) { _, _ = io.WriteString(w, text) }
}

func withStatus(status int, answer answer) answer {
	return func(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
		w.WriteHeader(status)
		answer(w, review)
	}
}

func withHeader(key, value string, answer answer) answer {
	return func(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
		w.Header().Set(key, value)
		answer(w, review)
	}
}
