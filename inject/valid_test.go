// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pillion-dev/pillion/inject"
)

// TestAnnotationsFull checks that a pod is left unchanged if its annotations have no room, but not
// if they have just enough. Annotations that the API server drops need no room.
func TestAnnotationsFull(t *testing.T) {
	t.Parallel()
	injector := inject.New(mustLoad(t, fstest.MapFS{"agent.yaml": {Data: []byte(
		"{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {default: true, pod: {spec: {containers: [{name: agent, image: a}]}}}}")}}, "."))
	const limit, own = 256 << 10, len("agent.pillion.dev/injected") + 12
	for size, want := range map[int]inject.Code{limit - own: inject.CodeInjected, limit - own + 1: inject.CodeConflict} {
		pod, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{"big": strings.Repeat(`"`, size-len("big")), "pod.beta.kubernetes.io/init-containers": "[]"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "app"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := checkInvariants(t, injector, inject.Request{Operation: "CREATE", OptedIn: true, Object: pod})
		if d := r.Decisions[0]; d.Code != want {
			t.Errorf("%d bytes of annotations: %s %s", size, d.Code, d.Message)
		}
	}
}
