// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"testing"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestSummary checks what the plan says about pods that need different changes.
func TestSummary(t *testing.T) {
	pod := func(fields ...string) *rollout.Pod {
		p := &rollout.Pod{Action: rollout.Patch, Changes: []rollout.Change{{How: rollout.Record, Path: "/metadata/annotations/agent.pillion.dev~1injected"}}}
		for _, field := range fields {
			p.Changes = append(p.Changes, rollout.Change{How: rollout.InPlace, Path: "/spec/initContainers/" + field})
		}
		return p
	}
	const image, memory = "agent/image", "agent/resources/limits/memory"
	for want, pods := range map[string][]*rollout.Pod{
		"its record":     {pod(), pod()},
		"image of agent": {pod(image), pod(image)},
		"image of agent, resources.limits.memory of agent":                               {pod(image, memory)},
		"its record in 1 pod; image of agent in 2 pods":                                  {pod(), pod(image), pod(image)},
		"image of a in 1 pod; image of b in 1 pod; image of c in 1 pod; 2 other changes": {pod("a/image"), pod("b/image"), pod("c/image"), pod("d/image"), pod("e/image")},
		"": {{Action: rollout.Leave}},
	} {
		w := &rollout.Workload{Way: rollout.ChangeInPlace, Behind: pods}
		if got := w.Summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
