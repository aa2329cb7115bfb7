// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

// huge is a namespace with too many annotations.
type huge struct{}

func (huge) Namespace(string) (request.Namespace, error) {
	return request.Namespace{}, fmt.Errorf("it has %w", webhook.ErrNamespaceTooLarge)
}

// TestNamespaceTooLarge checks that a pod in a namespace with too many annotations is denied with the reason. With a status
// after which it retries, the API server would report only that it has waited too long.
func TestNamespaceTooLarge(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Log, e.Namespaces = discard(), huge{}
	for _, path := range []string{webhook.PathMutate, webhook.PathValidate} {
		w := e.answer(post(t, path, reviewOf(t, "v1", "CREATE", "shop", []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"w"}]}}`))))
		if w.Code != http.StatusForbidden || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "too many labels and annotations") {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
}
