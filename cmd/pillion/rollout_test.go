// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestRolloutAsks checks which answers begin and continue a rollout, and that one line answers one question.
func TestRolloutAsks(t *testing.T) {
	t.Parallel()
	for answers, want := range map[string][2]bool{
		"y\nyes\n": {true, true}, "Y\nn\n": {true, false}, "yes\n": {true, false}, "y": {true, false}, "n\ny\n": {false, true}, "\n": {false, false}, "": {false, false}, "maybe\n": {false, false},
	} {
		var asked bytes.Buffer
		in, s := strings.NewReader(answers), &rolloutScreen{w: io.Discard, stderr: &asked, acts: 2, total: 20}
		begins := s.confirmStart(in)
		err := s.askNextWave(in, 2, []rollout.Part{{Workload: &rollout.Workload{}, Pods: make([]*rollout.Pod, 3)}})
		if begins != want[0] || (err == nil) != want[1] || err != nil && !errors.Is(err, executor.ErrStopped) {
			t.Errorf("%q: begins %t, continues %v; want %t", answers, begins, err, want)
		}
		if text := "Update 20 pods of 2 workloads? [y/N] 0 of 20 pods are done. Continue with wave 2 (3 pods of 1 workload)? [y/N] "; asked.String() != text {
			t.Errorf("it asks %q, want %q", &asked, text)
		}
	}
}

// TestRolloutGone checks that pods that are gone are not reported as updated.
func TestRolloutGone(t *testing.T) {
	t.Parallel()
	for _, format := range []bool{false, true} {
		var out bytes.Buffer
		s := &rolloutScreen{w: &out, stderr: io.Discard, json: format}
		pods := []*rollout.Pod{{Name: "a", Action: rollout.Patch}, {Name: "b", Action: rollout.Patch}, {Name: "c", Action: rollout.Patch}}
		s.printPlan(&cluster.Targets{Pods: 3, Workloads: []*rollout.Workload{{Namespace: "shop", Kind: "Deployment", Name: "web", Way: rollout.ChangeInPlace, Pods: 3, Behind: pods}}})
		s.reportEvent(executor.Event{Type: "pod", Namespace: "shop", Pod: "a", Done: 1, Total: 3})
		s.reportEvent(executor.Event{Type: "gone", Namespace: "shop", Workload: "Deployment/web", Pods: 2, Message: "it no longer exists", Done: 3, Total: 3})
		s.printEnd()
		for _, want := range []string{"Updated 1 pod. 2 pods are gone.", map[bool]string{false: "3/3 shop Deployment/web: gone, it no longer exists", true: `"type":"gone"`}[format]} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it does not print %q: %s", want, &out)
			}
		}
	}
}
