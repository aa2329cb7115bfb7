// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestChoose checks how a workload is updated, by what its pods need and what its owner can do.
func TestChoose(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		kind    string
		actions []rollout.Action
		owner   rollout.Owner
		way     rollout.Way
		why     string
		acts    bool
	}{
		"nothing":                           {"Deployment", nil, rollout.Owner{Restarts: true}, rollout.Keep, "", false},
		"a restart":                         {"Deployment", []rollout.Action{rollout.Replace}, rollout.Owner{Restarts: true}, rollout.Restart, "its args differ", true},
		"a restart would not help":          {"Deployment", []rollout.Action{rollout.Replace}, rollout.Owner{Restarts: true, Hold: "it is paused"}, rollout.Cannot, "but a restart would not help: it is paused", false},
		"a restart loses a change":          {"Deployment", []rollout.Action{rollout.Replace, rollout.Leave}, rollout.Owner{Restarts: true}, rollout.Cannot, "a restart would discard a change", false},
		"an eviction":                       {"ReplicaSet", []rollout.Action{rollout.Replace}, rollout.Owner{Recreates: true}, rollout.Evict, "its args differ", true},
		"an eviction, and a pod that stays": {"ReplicaSet", []rollout.Action{rollout.Replace, rollout.Leave}, rollout.Owner{Recreates: true}, rollout.Evict, "its args differ", true},
		"no controller":                     {"Pod", []rollout.Action{rollout.Replace}, rollout.Owner{}, rollout.Cannot, "no controller would create the pod again", false},
		"an unknown controller":             {"Game", []rollout.Action{rollout.Replace}, rollout.Owner{}, rollout.Cannot, "whether Game/web would create the pod again is unknown", false},
		"a Job":                             {"Job", []rollout.Action{rollout.Replace}, rollout.Owner{Job: true}, rollout.Finish, "never restarted", false},
	} {
		w := &rollout.Workload{Kind: test.kind, Name: "web"}
		for i, a := range test.actions {
			w.Behind = append(w.Behind, &rollout.Pod{Name: fmt.Sprint(i), Action: a, Why: "its args differ"})
		}
		w.Choose(test.owner)
		if w.Way != test.way || w.Acts() != test.acts || !strings.Contains(w.Why, test.why) {
			t.Errorf("%s: %s (%s), acts %t; want %s (%s), %t", what, w.Way, w.Why, w.Acts(), test.way, test.why, test.acts)
		}
	}
}

// TestChooseUpdating checks that a workload that replaces its pods is awaited, unless new pods are not current either, and
// that only such a workload counts as one that an earlier rollout has restarted.
func TestChooseUpdating(t *testing.T) {
	t.Parallel()
	restarted := time.Unix(1, 0)
	for what, test := range map[string]struct {
		updating bool
		newest   string // the name of the pod that is new
		way      rollout.Way
		behind   int
	}{
		"only old pods are behind": {true, "", rollout.Await, 0},
		"a new pod is behind":      {true, "web-1", rollout.Restart, 1},
		"it replaces none":         {false, "", rollout.Restart, 2},
	} {
		w := &rollout.Workload{Kind: "Deployment", Name: "web"}
		for _, name := range []string{"web-0", "web-1"} {
			w.Behind = append(w.Behind, &rollout.Pod{Name: name, Action: rollout.Replace, Why: "its args differ"})
		}
		w.Choose(rollout.Owner{Restarts: true, Updating: test.updating, Restarted: restarted, Newest: func(p *rollout.Pod) bool { return p.Name == test.newest }})
		if w.Way != test.way || len(w.Behind) != test.behind || w.Restarted.IsZero() == test.updating || w.Unfinished() != test.updating {
			t.Errorf("%s: %s of %d pods, restarted %s, want %s of %d", what, w.Way, len(w.Behind), w.Restarted, test.way, test.behind)
		}
	}
}

// TestParseUnavailable checks the limits of pods that may be unavailable, and their rounding.
func TestParseUnavailable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"1": 1, "300": 300, "1%": 1, "25%": 1, "50%": 3, "100%": 7, "0": 0, "0%": 0, "101%": 0, "-1": 0, "all": 0, "": 0} {
		u, err := rollout.ParseUnavailable(text)
		if (err == nil) != (want > 0) || err == nil && u.Of(7) != want {
			t.Errorf("%q of 7 pods: %d, %v; want %d", text, u.Of(7), err, want)
		}
	}
}

// TestCheckUnready checks that a pod that was not Ready before a change does not have to be afterwards.
func TestCheckUnready(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{false, true} {
		p := wellPod()
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		if h := checkTrimmed(t, p, wellPod(), []string{"agent"}, ready); h.Done == ready {
			t.Errorf("ready before %t: %+v", ready, h)
		}
	}
}

// TestCounts checks which pods a rollout leaves alone: those that end, and those that the API server only mirrors.
func TestCounts(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		change string // a merge patch
		want   rollout.Action
	}{
		"running":       {"{}", rollout.Patch},
		"pending":       {"{status: {phase: Pending}}", rollout.Patch},
		"succeeded":     {"{status: {phase: Succeeded}}", rollout.None},
		"failed":        {"{status: {phase: Failed}}", rollout.None},
		"being deleted": {"{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}", rollout.None},
		"a mirror":      {"{metadata: {annotations: {kubernetes.io/config.mirror: abc}}}", rollout.None},
	} {
		c := simple(t, `image: "agent:1"`, `image: "agent:2"`)
		pod, err := jsonpatch.MergePatch(c.running, toJSON(t, []byte(test.change)))
		must(t, err)
		if p := c.plan(pod); p.Action != test.want {
			t.Errorf("%s: %s (%s), want %s", what, p.Action, p.Why, test.want)
		}
	}
}

// TestReadsRequest checks that a pod is left if its template depends on who creates the pod.
func TestReadsRequest(t *testing.T) {
	t.Parallel()
	const args = `, args: ["${request.username}"]`
	c := simple(t, `image: "agent:1"`+args, `image: "agent:2"`+args)
	if p := c.plan(c.running); p.Action != rollout.Leave {
		t.Errorf("%s (%s)", p.Action, p.Why)
	}
}
