// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// endpoint is one webhook. Each is defined in its own file; [Handler.answerRequest] contains the common
// part.
type endpoint struct {
	path string
	name string // in metrics and in the log
	// caller is the webhook configuration that a caller's token must be bound to.
	caller authentication.Webhook
	// levels is how many levels of a review the parser indexes.
	levels int
	queue  queue
	// once: a rejection never asks the API server to retry, because no pod may wait for this webhook.
	once bool
	// judges: the findings are about a final pod, and the webhook's decision follows from them.
	judges bool
	// counted: the metric pillion_decisions_total counts the engine's decisions about the requests.
	counted bool
	// decisions are the possible results of a request that gets an answer, apart from
	// decidedIgnored.
	decisions []outcome
	// findings are the codes of findings about a template.
	findings []inject.Code
	// general are the codes of findings about no template.
	general []inject.Code
	// about reports whether the request concerns this webhook. If not, it is allowed unchanged.
	about func(*admissionRequest) bool
	// answer processes a request. Its answer is nil if there is nothing to say.
	answer func(*Handler, *exchange, *http.Request) (answer, *rejection)
}

// answer is the result of an endpoint for a request.
type answer interface {
	// decision is the name of the result in metrics and in the log.
	decision() string
	// fillResponse completes a response that allows the request unchanged, and appends to the audit annotations.
	fillResponse(*exchange, *admissionv1.AdmissionResponse, []inject.Note) []inject.Note
	// pod identifies the pod of the request.
	pod() *inject.Identity
	// decisions are those of the engine. There are none for a final pod.
	decisions() []inject.Decision
	// findings are what is wrong with the pod.
	findings() []inject.Finding
}

// outcome is the result of a request.
type outcome struct {
	decision string
	status   int
}

// The names of outcomes, in addition to those of the endpoints.
const (
	decidedUnchanged = "unchanged"
	decidedWithheld  = "withheld" // of the patch
	decidedIgnored   = "ignored"  // the request does not concern the webhook
	decidedWarned    = "warned"
	decidedRejected  = "rejected" // with an HTTP error
	decidedShed      = "shed"     // with 429: there are too many
	decidedDoubted   = "doubted"  // the API server calls another replica
)

// unknown are the codes of findings about no template that all webhooks for pods and workloads have.
var unknown = []inject.Code{inject.CodeUnknownTemplate, inject.CodeUnknownParameter}

// okOutcomes returns outcomes with HTTP 200.
func okOutcomes(decisions ...string) []outcome {
	all := make([]outcome, len(decisions))
	for i, decision := range decisions {
		all[i] = outcome{decision, http.StatusOK}
	}
	return all
}

// nowhere is the endpoint of requests to any other path.
var nowhere = &endpoint{name: "none"}

// exchange is one request with everything that is known about it.
type exchange struct {
	start    time.Time
	endpoint *endpoint
	caller   authentication.Way // "" if no caller check is configured
	share    share
	request  *admissionRequest
	answer   answer               // nil if the request does not concern the endpoint
	withheld *inject.UnsoundError // why the patch is not in the answer; nil if it is
	body     []byte               // of the HTTP response
	written  bool                 // whether all of the response was written
	rejected *rejection           // nil if the request gets an answer
	span     trace.Span           // nil if the request is not traced
	hangUp   bool                 // whether the connection ends after the answer
	buffers  *buffers             // nil before the body is read
	scratch  *scratch             // memory of the request's tree; nil before the request's turn, and after it
}

func (e *exchange) uid() string {
	if e.request == nil {
		return ""
	}
	return e.request.UID
}

func (e *exchange) status() int {
	if e.rejected != nil {
		return e.rejected.status
	}
	return http.StatusOK
}

// decision returns the name of the request's outcome.
func (e *exchange) decision() string {
	switch {
	case e.rejected != nil && e.rejected.status == http.StatusTooManyRequests:
		return decidedShed
	case e.isRedirected():
		return decidedDoubted
	case e.rejected != nil:
		return decidedRejected
	case e.answer == nil:
		return decidedIgnored
	case e.withheld != nil:
		return decidedWithheld
	}
	return e.answer.decision()
}

// isRedirected reports whether the API server is redirected to another replica.
func (e *exchange) isRedirected() bool { return e.rejected != nil && e.rejected.location != "" }

func (e *exchange) decisions() []inject.Decision {
	if e.answer == nil {
		return nil
	}
	return e.answer.decisions()
}

func (e *exchange) findings() []inject.Finding {
	if e.answer == nil {
		return nil
	}
	return e.answer.findings()
}

// traceID returns the ID of the request's trace, or "" if the request is not traced.
func (e *exchange) traceID() string {
	if e.span == nil {
		return ""
	}
	return e.span.SpanContext().TraceID().String()
}
