// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"log/slog"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// maxAllocs are those of a typical injected request, with expressions in its leaves. More is no mistake but has a
// price: say in the change what it buys.
const maxAllocs = 120

// TestAllocations is not parallel: it counts what the whole process allocates.
func TestAllocations(t *testing.T) {
	e := newEdge(load(t, sampleTemplates(1, true)...))
	e.Log = slog.New(slog.DiscardHandler)
	again := again(t, e.Handler, webhook.PathMutate, sampleBody(samplePod(1, 12, "", map[string]string{"a": "b"})), true)
	allocs := testing.AllocsPerRun(200, again)
	t.Logf("%.0f allocations", allocs)
	if allocs > maxAllocs {
		t.Errorf("a request makes %.0f allocations, more than %d", allocs, maxAllocs)
	}
}
