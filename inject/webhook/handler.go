// SPDX-License-Identifier: Apache-2.0

// Package webhook is the HTTP edge: an AdmissionReview comes in, an
// AdmissionReview goes out, and between them stands one call of the engine.
//
// What is asked about and is not the creation of a pod is allowed untouched. A
// request that cannot be answered gets an HTTP error with a sentence, which the
// API server handles by the webhook's failurePolicy.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/inject/webhook/callers"
	"github.com/pillion-dev/pillion/templates"
)

// The paths of the webhooks.
const (
	PathMutate   = "/mutate"
	PathValidate = "/validate"
	PathAdvise   = "/advise"
	PathShadow   = "/shadow"
)

// Namespaces tells what is known about a namespace. It is asked in the way of a
// request and must answer from memory; Known is false where it will never know.
// The error says that it does not know yet.
type Namespaces interface {
	Namespace(name string) (templates.Namespace, error)
}

// Handler answers the API server on the webhooks' paths.
type Handler struct {
	// Injector and Judge give the engine in use, from a pointer that a reload swaps.
	Injector   func() *inject.Injector
	Judge      func() *inject.Judge
	Namespaces Namespaces
	Callers    *callers.Guard // nil where everyone may call
	Fit        *fit.Evaluator // nil: nothing is said of what pods need of their namespace
	Limits     Limits         // nil: no LimitRange and no quota is known
	Limiter    *Limiter       // nil: no limit
	Metrics    *Metrics
	Log        *slog.Logger
	Tracer     trace.Tracer // nil: there are no traces

	buffers, scratch sync.Pool // of *buffers, and of *scratch
}

// exchange is one request and all that is to be told about it.
type exchange struct {
	start time.Time
	// The caller waits until deadline, or until ctx is done.
	deadline    time.Time
	ctx         context.Context
	webhook     string      // mutate, validate, advise, shadow, or "" for another path
	caller      callers.Way // "" where nobody asked
	request     *request
	result      *inject.Result       // nil where the engine was not asked
	verdict     *inject.Verdict      // of a final pod; its Result is result
	advice      []string             // about the pods of a workload; result is theirs
	preview     *inject.Verdict      // of the pod with what result would add, which it does not get
	withheld    *inject.UnsoundError // why the result's patch is not in the answer; nil if it is
	answer      []byte
	written     bool // all of it
	refused     *refusal
	limiter     *Limiter
	share       share
	span        trace.Span // nil where none is kept
	createAgain bool       // the pod may be right for another replica
	buffers     *buffers   // nil before the body is read
	scratch     *scratch   // what request's trees are in; nil before its turn, and after it
}

// refusal is the HTTP error that a request gets instead of an answer.
type refusal struct {
	status     int
	sentence   string
	retryAfter string // seconds; "" for no second try
	location   string // of a redirect
	caller     callers.Reason
	shed       string // why it is one too many
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, sentence: clip(fmt.Sprintf(format, args...), maxSentence)}
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &exchange{start: time.Now(), ctx: r.Context(), limiter: h.Limiter}
	defer h.Limiter.forget(e)
	h.startSpan(e, r)
	h.handle(e, w, r)
	took := time.Since(e.start)
	h.Limiter.count(e)
	h.Metrics.observe(e, took)
	h.log(e, r, took)
	e.endSpan()
	h.settle(e) // a client that does not read holds the answer only
	e.write(w, r)
	h.release(e)
}

// handle fills in what is to be answered. A panic is answered too: a dropped
// connection would take other requests of the API server with it.
func (h *Handler) handle(e *exchange, w http.ResponseWriter, r *http.Request) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // is for net/http
		}
		h.panicked(e, r, p)
		e.refused = refuse(http.StatusInternalServerError, "an internal error; see the log for request %q", e.uid())
	}()
	defer h.Limiter.leave(e)
	if e.refused = h.ask(e, w, r); e.refused != nil {
		if e.webhook == webhookShadow {
			e.refused.retryAfter = "" // nobody's pod is to wait for it
		}
		return
	}
	e.createAgain = e.verdict != nil && e.verdict.CreateAgain()
	e.answer = encode(e)
	// What the answer takes beside the body is known only now, and not much at a time.
	if held := cap(e.buffers.patch) + cap(e.buffers.answer); held > freeAnswer && !h.Limiter.take(&e.share, held) {
		e.refused, e.answer, e.buffers.patch, e.buffers.answer = shed(shedMemory), nil, nil, nil
	}
}

// ask decodes the request and asks the engine where it is the engine's business.
func (h *Handler) ask(e *exchange, w http.ResponseWriter, r *http.Request) *refusal {
	switch r.URL.Path {
	case PathMutate:
		e.webhook = "mutate"
	case PathValidate:
		e.webhook = "validate"
	case PathAdvise:
		e.webhook = webhookAdvise
	case PathShadow:
		e.webhook = webhookShadow
	default:
		return refuse(http.StatusNotFound, "there is nothing here; the webhooks are at %s, %s, %s and %s", PathMutate, PathValidate, PathAdvise, PathShadow)
	}
	if refused := h.identify(e, w, r); refused != nil {
		return refused
	}
	if refused := e.head(w, r); refused != nil {
		return refused
	}
	if refused := h.Limiter.receive(r); refused != nil {
		return refused
	}
	h.lendBuffers(e)
	if refused := h.read(e, w, r); refused != nil {
		return refused
	}
	if refused := h.Limiter.enter(e, len(e.buffers.body)); refused != nil {
		return refused
	}
	h.lend(e)
	levels := podLevel
	if e.webhook == "validate" {
		levels = finalLevel
	}
	var refused *refusal
	if e.request, refused = decode(&e.scratch.engine.Parser, e, e.buffers.body, levels); refused != nil {
		return cmp.Or(e.share.denied, refused)
	}
	if e.webhook == webhookAdvise {
		h.advise(e, r)
		return gone(r)
	}
	if !e.request.createsPod() {
		return nil
	}
	if e.webhook == webhookShadow {
		h.shadow(e, r)
		return gone(r)
	}
	// metadata.namespace is not set yet where a controller creates the pod.
	namespace, err := h.Namespaces.Namespace(e.request.Namespace)
	if err != nil {
		r := refuse(http.StatusServiceUnavailable, "%v", err)
		r.retryAfter = "1"
		return r
	}
	req := e.aboutPod(r, namespace)
	if e.webhook == "mutate" {
		e.result, err = h.Injector().Inject(req)
	} else if e.verdict, err = h.Judge().Judge(req); err == nil {
		e.result = e.verdict.Result
	}
	if errors.Is(err, inject.ErrGone) {
		return tooLate()
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "request.object is not a pod: %v", err)
	}
	if e.verdict != nil && e.verdict.Doubt {
		return callAgain(r, e.verdict)
	}
	return nil
}

// gone is the answer to a caller that has stopped waiting.
func gone(r *http.Request) *refusal {
	if r.Context().Err() != nil {
		return tooLate()
	}
	return nil
}

// aboutPod is what the engine is asked.
func (e *exchange) aboutPod(r *http.Request, namespace templates.Namespace) inject.Request {
	return inject.Request{
		Operation: string(e.request.Operation),
		Username:  e.request.UserInfo.Username,
		DryRun:    e.request.DryRun,
		OptedIn:   true,
		Namespace: namespace,
		Pod:       e.request.Object,
		Scratch:   &e.scratch.engine,
		Done:      r.Context().Done(),
	}
}

func (e *exchange) uid() string {
	if e.request == nil {
		return ""
	}
	return e.request.UID
}

func (e *exchange) status() int {
	if e.refused != nil {
		return e.refused.status
	}
	return http.StatusOK
}
