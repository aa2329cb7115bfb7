// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/pillion-dev/pillion/inject"
)

// mostCalls is how often the validating webhook is called for one pod. If two
// replicas have different templates, each injects half of the pods, and for one in 32
// of them the other one answers all five calls: one good pod in 64 is denied, and
// created again by its controller.
const mostCalls = 5

// paramCall counts the calls. Only the URL can: the calls reach different replicas.
const paramCall = "call"

// callAgain has the API server call once more, on a new connection, for which the
// Service picks a replica anew; or nil, if it was called as often as it may be. The
// API server follows a redirect with the same body (Go's http.Client does), within
// the webhook's timeout. The last call is always answered with a verdict.
func callAgain(r *http.Request, v *inject.Verdict) *refusal {
	query := r.URL.Query()
	call, err := strconv.Atoi(query.Get(paramCall))
	if err != nil {
		call = 1
	}
	if call < 1 || call >= mostCalls {
		return nil
	}
	query.Set(paramCall, strconv.Itoa(call+1))
	again := refuse(http.StatusTemporaryRedirect, "%s (another replica may have other templates; follow the redirect)", inject.Denial(v.Judged))
	again.location = (&url.URL{RawQuery: query.Encode()}).String()
	return again
}
