// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

// leaving knows namespaces. When a namespace is read, the caller leaves.
type leaving struct{ leave context.CancelFunc }

func (l leaving) Namespace(name string) (request.Namespace, error) {
	l.leave()
	return request.Namespace{Name: name}, nil
}

// TestCallerGone checks that on every path, a caller that leaves while its pod is processed gets
// the answer for a gone caller, and that nothing is decided for it.
func TestCallerGone(t *testing.T) {
	t.Parallel()
	pod := []byte(`{"spec":{"containers":[{"name":"app"}]}}`)
	review := reviewOf(t, "v1", "CREATE", "shop", pod)
	workload := advised("apps/v1", "Deployment", "CREATE", `{"spec":{"template":`+string(pod)+`}}`, "null")
	for path, body := range map[string][]byte{webhook.PathMutate: review, webhook.PathValidate: review, webhook.PathShadow: review, webhook.PathAdvise: workload} {
		e := newEdge(load(t, sidecar))
		e.Judge = func() *inject.Judge { return inject.NewJudge(e.Injector(), nil, true) }
		ctx, cancel := context.WithCancel(t.Context())
		e.Namespaces = leaving{cancel}
		if w := e.answer(post(t, path, body).WithContext(ctx)); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
