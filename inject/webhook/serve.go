// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var endpoints = []*endpoint{mutate, validate, shadow, advise, lint}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics { return newMetrics(registry, endpoints) }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &exchange{start: time.Now(), endpoint: nowhere, share: share{limiter: h.Limiter, ctx: r.Context()}}
	defer e.share.releaseMemory()
	h.startSpan(e, r)
	h.handleExchange(e, w, r)
	took := time.Since(e.start)
	h.Limiter.countShed(e.rejected)
	h.Metrics.observeRequest(e, took)
	h.logRequest(e, r, took)
	e.endSpan()
	h.returnScratch(e) // a client that does not read holds only the answer
	e.writeResponse(w, r)
	h.returnBuffers(e)
}

// handleExchange produces the answer. After a panic, the request gets 500: a dropped
// connection would also end other requests of the API server.
func (h *Handler) handleExchange(e *exchange, w http.ResponseWriter, r *http.Request) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // net/http handles it
		}
		h.logPanic(e, r, p)
		e.rejected = newRejection(http.StatusInternalServerError, "an internal error; see the log for request %q", e.uid())
	}()
	defer e.share.leaveQueue()
	if e.rejected = h.answerRequest(e, w, r); e.rejected != nil {
		if e.endpoint.once {
			e.rejected.retryAfter = ""
		}
		return
	}
	e.body = encodeAnswer(e)
	// The answer's size is known only now. That it is counted late is harmless, because few answers are encoded at a time.
	if held := len(e.scratch.patch) + cap(e.buffers.answer); held > freeAnswer && !e.share.takeMemory(held) {
		e.rejected, e.body, e.scratch.patch, e.buffers.answer = shedRejection(shedMemory), nil, nil, nil
	}
}

// answerRequest reads and decodes the request, and has the endpoint answer it if it concerns the endpoint.
func (h *Handler) answerRequest(e *exchange, w http.ResponseWriter, r *http.Request) (rejected *rejection) {
	if e.endpoint = endpointAt(r.URL.Path); e.endpoint == nowhere {
		var paths []string
		for _, other := range endpoints {
			paths = append(paths, other.path)
		}
		return newRejection(http.StatusNotFound, "this path does not exist; the webhooks are at %s", strings.Join(paths, ", "))
	}
	if rejected = h.authenticateCaller(e, w, r); rejected != nil {
		return rejected
	}
	if rejected = e.checkHead(w, r); rejected != nil {
		return rejected
	}
	if rejected = h.Limiter.checkRoom(r); rejected != nil {
		return rejected
	}
	h.lendBuffers(e)
	if rejected = h.readBody(e, w, r); rejected != nil {
		return rejected
	}
	waits := e.endpoint.queue
	if waits == small && len(e.buffers.body) > largeBody {
		waits = large
	}
	if rejected = e.share.enterQueue(waits); rejected != nil {
		return rejected
	}
	h.lendScratch(e)
	if e.request, rejected = decodeReview(&e.scratch.engine.Parser, &e.share, e.buffers.body, e.endpoint.levels); rejected != nil {
		return cmp.Or(e.share.denied, rejected)
	}
	if e.endpoint.about(e.request) {
		e.answer, rejected = e.endpoint.answer(h, e, r)
	}
	return rejected
}

func endpointAt(path string) *endpoint {
	if i := slices.IndexFunc(endpoints, func(e *endpoint) bool { return e.path == path }); i >= 0 {
		return endpoints[i]
	}
	return nowhere
}

// authenticateCaller authenticates the caller before it reads a byte of the body.
//
// A caller that fails gets an HTTP error rather than an answer that denies, so the API server
// follows the webhook's failurePolicy.
func (h *Handler) authenticateCaller(e *exchange, w http.ResponseWriter, r *http.Request) *rejection {
	if h.Guard == nil {
		return nil
	}
	way, wrong := h.Guard.Check(r, e.endpoint.caller)
	if wrong == nil {
		e.caller = way
		return nil
	}
	for _, challenge := range wrong.Challenges {
		w.Header().Add("WWW-Authenticate", challenge)
	}
	// If the server kept the connection, it would read the rest of the body before it
	// answers. And a caller can present a new certificate only on a new connection.
	w.Header().Set("Connection", "close")
	rejected := newRejection(http.StatusUnauthorized, "the caller is not authenticated (401): %s", wrong.Sentence)
	rejected.caller = wrong.Reason
	return rejected
}

// contentTypes is the header of every response; it is read only.
var contentTypes = []string{contentJSON}

func (e *exchange) writeResponse(w http.ResponseWriter, r *http.Request) {
	header, body := w.Header(), e.body
	header["Content-Type"] = contentTypes
	switch {
	case e.rejected != nil:
		body = e.rejected.statusBody()
		if e.rejected.retryAfter != "" {
			header.Set("Retry-After", e.rejected.retryAfter)
		}
		if e.rejected.location != "" {
			header.Set("Location", e.rejected.location)
		}
		if e.isRedirected() || e.rejected.retryAfter != "" && e.rejected.status == http.StatusServiceUnavailable { // another replica may be able to answer
			header.Set("Connection", "close")
		}
	case e.hangUp:
		header.Set("Connection", "close")
	}
	header.Set("Content-Length", strconv.Itoa(len(body))) // no chunked encoding
	w.WriteHeader(e.status())
	_, err := w.Write(body)
	if r.ProtoMajor > 1 && err == nil { // while a stream waits for its client, the request's memory must count
		err = http.NewResponseController(w).Flush()
	}
	e.written = err == nil // a caller that is gone gets no answer
}
