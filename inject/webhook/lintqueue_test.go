// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// TestLintQueue checks that templates that take long to compile do not keep large pods waiting.
func TestLintQueue(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Log, e.Fit = discard(), evaluator(t)
	all := make([]string, 500)
	for i := range all {
		all[i] = fmt.Sprintf(`"${['a','b'].map(x, x+'c'+string(%d)).join(',').split(',').map(y, y + y).join(';') + pod.spec.containers[0].name}"`, i)
	}
	costly := templateReview(`{"pod":{"spec":{"containers":[{"name":"c","image":"i","args":[` + strings.Join(all, ",") + `]}]}}}`)
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i","args":["` + strings.Repeat("x", 70<<10) + `"]}]}}`
	large := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"name":"x","namespace":"other","operation":"CREATE","userInfo":{"username":"u"},"object":` + pod + `}}`
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				e.answer(post(t, webhook.PathLint, costly))
			}
		})
	}
	for i := range 20 {
		if w := e.answer(post(t, webhook.PathMutate, []byte(large))); w.Code != http.StatusOK {
			t.Errorf("request %d of a large pod gets %d: %s", i, w.Code, w.Body)
		}
	}
	done.Store(true)
	wg.Wait()
}
