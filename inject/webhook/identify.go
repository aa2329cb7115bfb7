// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"

	"github.com/pillion-dev/pillion/inject/webhook/callers"
)

// identify finds out who calls, before a byte of the body is read.
//
// It is an error and no answer that denies, so the API server goes by the webhook's
// failurePolicy.
func (h *Handler) identify(e *exchange, w http.ResponseWriter, r *http.Request) *refusal {
	if h.Callers == nil {
		return nil
	}
	kind := callers.Mutating
	switch e.webhook {
	case "validate", webhookShadow: // which are in one configuration
		kind = callers.Validating
	case webhookAdvise:
		kind = callers.Advising
	}
	way, wrong := h.Callers.Check(r, kind)
	if wrong == nil {
		e.caller = way
		return nil
	}
	for _, challenge := range wrong.Challenges {
		w.Header().Add("WWW-Authenticate", challenge)
	}
	// The server would read what is left of the body before it answers, if it kept
	// the connection; and a caller shows a new certificate on a new one alone.
	w.Header().Set("Connection", "close")
	refused := refuse(http.StatusUnauthorized, "the caller is not authenticated (401): %s", wrong.Sentence)
	refused.caller = wrong.Reason
	return refused
}
