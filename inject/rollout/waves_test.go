// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"strings"
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

// TestWaves checks which pods of which workloads are in each wave.
func TestWaves(t *testing.T) {
	t.Parallel()
	workload := func(name string, way rollout.Way, pods int) *rollout.Workload {
		w := &rollout.Workload{Name: name, Way: way, Pods: pods}
		action := map[rollout.Way]rollout.Action{rollout.ChangeInPlace: rollout.Patch, rollout.Evict: rollout.Replace}[way]
		for i := range pods {
			w.Behind = append(w.Behind, &rollout.Pod{Name: fmt.Sprint(name, i), Ready: true, Action: action, Changes: []rollout.Change{{How: rollout.InPlace}}})
		}
		return w
	}
	half := workload("half", rollout.ChangeInPlace, 4) // an earlier rollout has begun with the last two pods
	half.Behind[2].Changes, half.Behind[3].Changes = nil, nil
	unready := workload("u", rollout.ChangeInPlace, 3)
	unready.Behind[2].Ready = false
	all := []*rollout.Workload{workload("r", rollout.Restart, 3), workload("a", rollout.ChangeInPlace, 12), workload("c", rollout.Cannot, 9), workload("e", rollout.Evict, 5)}
	one, err := rollout.ParseUnavailable("1")
	if err != nil {
		t.Fatal(err)
	}
	third, err := rollout.ParseUnavailable("34%")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what  string
		all   []*rollout.Workload
		waves rollout.Waves
		want  string
	}{
		{"no waves", all, rollout.Waves{}, "a:12 e:5 r:3"},
		{"one pod first", all, rollout.Waves{First: 1}, "a:1 | a:11 e:5 r:3"},
		{"shares of 20 pods", all, rollout.Waves{First: 1, Shares: []int{5, 25, 100}}, "a:1 | a:4 | a:7 e:5 r:3"},
		{"one workload first", all, rollout.Waves{FirstWorkloads: one}, "a:12 | e:5 r:3"},
		{"a third of the workloads first", all, rollout.Waves{FirstWorkloads: third}, "a:12 | e:5 r:3"},
		{"a restart is in one wave", all[:1], rollout.Waves{First: 1, Shares: []int{50}}, "r:3"},
		{"what is begun comes first", []*rollout.Workload{all[1], half}, rollout.Waves{First: 1}, "half:2 | half:2 a:12"},
		{"pods that are not ready come first", []*rollout.Workload{unready}, rollout.Waves{First: 1}, "u:1(u2) | u:2(u0)"},
		{"nothing changes", all[2:3], rollout.Waves{First: 1}, ""},
	} {
		left := rollout.Parts(test.all)
		taken := 0
		var waves []string
		for _, end := range test.waves.Ends(left) {
			var wave []rollout.Part
			wave, left = rollout.TakeWave(left, end-taken)
			taken = max(taken, end)
			var parts []string
			for _, p := range wave {
				text := fmt.Sprintf("%s:%d", p.Name, len(p.Pods))
				if p.Name == "u" {
					text += "(" + p.Pods[0].Name + ")"
				}
				parts = append(parts, text)
			}
			if len(parts) > 0 {
				waves = append(waves, strings.Join(parts, " "))
			}
		}
		if got := strings.Join(waves, " | "); got != test.want || len(left) > 0 {
			t.Errorf("%s: %s, and %d are left; want %s", test.what, got, len(left), test.want)
		}
	}
}
