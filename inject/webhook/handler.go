// SPDX-License-Identifier: Apache-2.0

// Package webhook handles HTTP: it decodes an AdmissionReview, calls the engine, and encodes the AdmissionReview with the response.
//
// Each webhook is an [endpoint]: mutate.go, validate.go, shadow.go, advise.go and lint.go define one each. A request that does not
// concern its endpoint is allowed without changes. A request that cannot be answered gets an HTTP error with a sentence. The API
// server handles such an error according to the failurePolicy of the webhook.
package webhook

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// Namespaces returns what is known about a namespace. Requests wait for it, so it
// must answer from memory. It returns an error if it does not know the namespace yet. If it will never know the namespace, Known in
// the result is false.
type Namespaces interface {
	Namespace(name string) (request.Namespace, error)
}

// Limits returns the LimitRanges and quotas of a namespace. Requests wait for it,
// so it must answer from memory. It omits objects that it does not know.
type Limits interface {
	Limits(namespace string) limits.Limits
}

// Handler answers the API server on the webhooks' paths.
type Handler struct {
	// Use returns what is in use for the pods of a namespace, from a pointer that a reload swaps.
	Use        func(namespace string) (*inject.Injector, *inject.Judge)
	All        func() *templates.Set // the templates of all namespaces; nil: they are not known
	Namespaces Namespaces
	// Admits returns which limit a template of a namespace would exceed with this content (JSON), so that this template or another
	// one would not be used. It returns "" if there is none. Nil: there are no limits.
	Admits  func(namespace, name string, text []byte) string
	Guard   *authentication.Guard // nil: callers are not authenticated
	Fit     *limits.Evaluator     // nil: advise does not report what pods need of their namespace
	Limits  Limits                // nil: no LimitRange and no quota is known
	Limiter *Limiter              // nil: no limit
	Metrics *Metrics
	Log     *slog.Logger
	Tracer  trace.Tracer // nil: there are no traces

	buffers, scratch sync.Pool // of *buffers, and of *scratch
	recent           recentPods
}

// injector returns the injector for the request's namespace.
func (h *Handler) injector(e *exchange) *inject.Injector {
	injector, _ := h.Use(e.request.Namespace)
	return injector
}

// judge returns the judge for the request's namespace.
func (h *Handler) judge(e *exchange) *inject.Judge {
	_, judge := h.Use(e.request.Namespace)
	return judge
}

// aboutPod returns the engine's input for a new pod. It returns a rejection if the namespace is not known.
func (h *Handler) aboutPod(e *exchange, r *http.Request) (inject.Request, *rejection) {
	// metadata.namespace is not set yet if a controller creates the pod.
	namespace, err := h.Namespaces.Namespace(e.request.Namespace)
	if errors.Is(err, ErrNamespaceTooLarge) {
		return inject.Request{}, newRejection(http.StatusForbidden, "%v", err)
	}
	if err != nil {
		return inject.Request{}, notYet(err.Error())
	}
	return inject.Request{
		Operation: string(e.request.Operation),
		Username:  e.request.UserInfo.Username,
		DryRun:    e.request.DryRun,
		OptedIn:   true,
		Namespace: namespace,
		Pod:       e.request.Object,
		Scratch:   &e.scratch.engine,
		Done:      r.Context().Done(),
	}, nil
}

// ErrNamespaceTooLarge is in an error of [Namespaces] about a namespace that no replica will ever know. A retry would not help, so the
// request gets 403 instead of 503. The API server reports the reason to users only for an error that it does not retry.
var ErrNamespaceTooLarge = errors.New("too many labels and annotations")

// notYet returns the rejection of a request that can be answered in a moment. It asks the API server to retry.
func notYet(why string) *rejection {
	later := newRejection(http.StatusServiceUnavailable, "%s", why)
	later.retryAfter = "1"
	return later
}

// awaitsAccount returns a rejection if a template for the pod reads the pod's ServiceAccount, and the ServiceAccount is not known
// yet. It was probably created a moment ago; without it, the pod would get the wrong values. If Pillion does not follow the cluster's
// ServiceAccounts at all, a retry would not help, and awaitsAccount returns nil.
func awaitsAccount(req *inject.Request, result *inject.Result) *rejection {
	if req.Namespace.ServiceAccounts == nil {
		return nil
	}
	for i := range result.Decisions {
		if d := &result.Decisions[i]; d.Code == inject.CodeUnknownServiceAccount {
			return notYet(fmt.Sprintf("template %s: %s; retry in a moment", d.Template, d.Sentence()))
		}
	}
	return nil
}

// notAPod returns the rejection for an error of the engine.
func notAPod(err error) *rejection {
	if errors.Is(err, inject.ErrGone) {
		return tooLate()
	}
	return newRejection(http.StatusBadRequest, "request.object is not a pod: %v", err)
}

// goneRejection returns the answer to a caller that has stopped waiting.
func goneRejection(r *http.Request) *rejection {
	if r.Context().Err() != nil {
		return tooLate()
	}
	return nil
}
