// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// shedFile has the answer to a request that is shed. TestShed in e2e sends it to a real API server.
const shedFile = "testdata/shed.http"

// TestShedAnswer checks the answer to a request for which there is no room.
func TestShedAnswer(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Limiter = webhook.NewLimiter(prometheus.NewRegistry(), 1, 0) // so there is no room for a large body
	large := `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 20<<10) + `"}},"spec":{"containers":[]}}`
	w := e.answer(post(t, webhook.PathMutate+"?timeout=5s", reviewOf(t, "v1", "CREATE", "shop", []byte(large))))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Connection") != "" {
		t.Errorf("it is not shed, or costs the connection: %d %v", w.Code, w.Header())
	}
	var got bytes.Buffer
	if err := w.Result().Write(&got); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(got.String(), "\r\n", "\n")
	golden.File(t, shedFile, []byte(text))
}
