// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestShadowBlocksNothing checks that the pod continues at once if there is no result, and that the
// API server is never asked to retry.
func TestShadowBlocksNothing(t *testing.T) {
	t.Parallel()
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	e := newEdge(load(t, sidecar))
	e.Namespaces = parameters{"other"} // shop is not known yet
	r, _ := checkContract(t, webhook.PathShadow, body, e.answer(post(t, webhook.PathShadow, body)))
	if len(r.Warnings)+len(r.AuditAnnotations) > 0 {
		t.Errorf("of a namespace that is not known it says %q, %q", r.Warnings, r.AuditAnnotations)
	}
	e.Limiter.SetMemory(1)
	body = append(body, strings.Repeat(" ", 16<<10)...) // more than what is free for each request
	if w := e.answer(post(t, webhook.PathShadow, body)); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" {
		t.Errorf("without memory: %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// withFormer knows a ServiceAccount that had no role a moment ago.
type withFormer struct{}

func (withFormer) Namespace(name string) (request.Namespace, error) {
	return request.Namespace{Name: name, Known: true, ServiceAccounts: withFormer{}}, nil
}

func (withFormer) ServiceAccount(_, name string) request.ServiceAccount {
	return request.ServiceAccount{Name: name, Known: true, Annotations: map[string]string{"role": "admin"}, Before: &request.ServiceAccount{Name: name, Known: true}}
}

// TestShadowJudgesInjectedPod checks that a shadow verdict is the validating webhook's about the pod
// with its additions, also by what its ServiceAccount was before.
func TestShadowJudgesInjectedPod(t *testing.T) {
	t.Parallel()
	const conflicts = `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: reader}, spec: {
  required: true, match: {condition: "'role' in serviceAccount.annotations"}, pod: {spec: {containers: [{name: web, image: other}]}}}}`
	e := newEdge(load(t, strings.Replace(sidecar, "default: true", "required: true", 1), conflicts))
	e.Namespaces = withFormer{}
	if got := e.answer(post(t, webhook.PathShadow, reviewOf(t, "v1", "CREATE", "shop", []byte(pod)))).Body.String(); !strings.Contains(got, "the pod would get log-agent") {
		t.Error(got)
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
