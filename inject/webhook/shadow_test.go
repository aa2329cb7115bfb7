// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// TestShadowBlocksNothing checks that the pod continues at once if there is no result, and that the
// API server is never asked to retry.
func TestShadowBlocksNothing(t *testing.T) {
	t.Parallel()
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	e := newEdge(load(t, sidecar))
	e.Namespaces = parameters{"other"} // and not shop, yet
	r, _ := checkContract(t, webhook.PathShadow, body, e.answer(post(t, webhook.PathShadow, body)))
	if len(r.Warnings)+len(r.AuditAnnotations) > 0 {
		t.Errorf("of a namespace that is not known it says %q, %q", r.Warnings, r.AuditAnnotations)
	}
	e.Limiter.SetMemory(1)
	body = append(body, strings.Repeat(" ", 16<<10)...) // more than every request may have
	if w := e.answer(post(t, webhook.PathShadow, body)); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" {
		t.Errorf("without memory: %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestShadowIsCounted checks that shadow results are counted separately from injections and
// denials.
func TestShadowIsCounted(t *testing.T) {
	t.Parallel()
	taken := strings.Replace(pod, `"name":"web"`, `"name":"log-agent"`, 1)
	e := newEdge(load(t, strings.Replace(sidecar, "default: true", "required: true", 1)))
	for _, object := range []string{pod, taken, `{"spec":{"containers":[]}}`} {
		e.answer(post(t, webhook.PathShadow, reviewOf(t, "v1", "CREATE", "shop", []byte(object))))
	}
	e.answer(post(t, webhook.PathShadow, reviewOf(t, "v1", "DELETE", "shop", []byte("null"))))
	want := `pillion_webhook_requests_total{decision="ignored",status="200",webhook="shadow"} 1
pillion_webhook_requests_total{decision="unchanged",status="200",webhook="shadow"} 1
pillion_webhook_requests_total{decision="would_deny",status="200",webhook="shadow"} 1
pillion_webhook_requests_total{decision="would_inject",status="200",webhook="shadow"} 1
`
	if got := counted(t, e.registry); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
