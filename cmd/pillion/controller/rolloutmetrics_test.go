// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// TestRolloutMetrics checks the number of rollouts in each state while a rollout runs, stops, is undone, and ends.
func TestRolloutMetrics(t *testing.T) {
	u := newUndone(t, map[string]any{})
	leads := true
	m := &rolloutMetrics{leads: func() bool { return leads }, entries: func() []*kube.Entry { return u.catalog().Entries() }}
	want := func(what, state string) {
		t.Helper()
		text := "# HELP pillion_controller_rollouts Automatic rollouts by their state.\n# TYPE pillion_controller_rollouts gauge\n"
		for _, s := range []string{"running", "stopped", "undoing", "undone"} {
			n := map[bool]string{true: "1", false: "0"}[s == state]
			text += `pillion_controller_rollouts{state="` + s + `"} ` + n + "\n"
		}
		if err := testutil.CollectAndCompare(m, strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("at first", "")
	u.fails["shop"] = errors.New("pod web-1 in the namespace shop: it is not done after 5m0s")
	u.reconcile(t)
	want("a pod has failed, and does not become ready", "stopped")
	delete(u.fails, "shop")
	u.clock = u.clock.Add(retryAfter)
	u.reconcile(t)
	want("it was undone", "undone")
	u.rollout(map[string]any{"strategy": "InPlace"})
	want("the template has changed", "")
	leads = false
	if n := testutil.CollectAndCount(m); n != 0 {
		t.Errorf("a replica that does not lead has %d series", n)
	}
}
