// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// PathMutate is the path of the mutating webhook, which injects.
const PathMutate = "/mutate"

const decidedInjected = "injected"

var mutate = &endpoint{
	path:      PathMutate,
	name:      "mutate",
	caller:    authentication.Mutating,
	levels:    podLevel,
	counted:   true,
	decisions: okOutcomes(decidedInjected, decidedUnchanged, decidedWithheld),
	findings:  []inject.Code{inject.CodeUnknownParameter},
	general:   unknown,
	about:     (*admissionRequest).createsPod,
	answer: func(h *Handler, e *exchange, r *http.Request) (answer, *rejection) {
		req, rejected := h.aboutPod(e, r)
		if rejected != nil {
			return nil, rejected
		}
		injector := h.injector(e)
		again := isInjected(req.Pod) // before Inject adds records to it
		result, err := injector.Inject(req)
		if err != nil {
			return nil, notAPod(err)
		}
		if later := awaitsAccount(&req, result); later != nil {
			return nil, later
		}
		if !again {
			h.recent.keepCreated(e.request, injector.For(e.request.Namespace).Set().Revision, result)
		}
		return injected{result}, nil
	},
}

// injected is the answer about a new pod.
type injected struct{ *inject.Result }

func (i injected) decision() string {
	if i.Adds() {
		return decidedInjected
	}
	return decidedUnchanged
}

// fillResponse adds the patch, the warnings and the audit annotations. If the patch is not sound because of a bug in Pillion, it is
// withheld: the pod continues unchanged, and the validating webhook decides about it.
func (i injected) fillResponse(e *exchange, response *admissionv1.AdmissionResponse, notes []inject.Note) []inject.Note {
	if i.Adds() {
		patch, err := i.AppendVerified(e.scratch.patch, &e.scratch.verifier)
		e.scratch.patch = patch
		if errors.As(err, &e.withheld) {
			response.Warnings = clipWarnings([]string{"nothing is injected because of a bug in Pillion, please report it: " + err.Error()}, "")
			return append(notes, inject.Note{Key: "patch_withheld", Text: err.Error()})
		}
		patchType := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &patchType
	}
	response.Warnings = clipWarnings(i.Warnings(), inAuditLog)
	return i.AppendAudit(notes)
}

func (i injected) pod() *inject.Identity        { return &i.Pod }
func (i injected) decisions() []inject.Decision { return i.Decisions }
func (i injected) findings() []inject.Finding   { return i.Findings }
