// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestProve checks that a rollout evicts one pod before it restarts a workload, and restarts that only if the new pod is
// proved.
func TestProve(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		change    func(*recreating)
		pods      int
		behind    int // 0: all
		bake      time.Duration
		evicted   int
		restarted bool
		want      string // of the error
	}{
		"the new pod stays ready": {pods: 4, bake: 90 * time.Second, evicted: 1, restarted: true},
		"it fails after 60 s": {pods: 4, bake: 90 * time.Second, evicted: 1, want: "it replaces web-0, which was evicted: it was ready with the change for 1m", change: func(c *recreating) {
			c.evicts = func(name string) {
				time.AfterFunc(time.Minute, func() {
					c.mu.Lock()
					defer c.mu.Unlock()
					c.pods[name].Status.Conditions[0].Status = corev1.ConditionFalse
				})
			}
		}},
		"it is not current":                  {pods: 4, bake: 90 * time.Second, evicted: 1, want: "it is outdated; maybe not all replicas of Pillion use the templates yet", change: func(c *recreating) { c.by = c.old }},
		"only one pod is behind":             {pods: 4, behind: 1, bake: 90 * time.Second, evicted: 1},
		"it has only one pod":                {pods: 1, bake: 90 * time.Second, restarted: true},
		"nothing has to be proved":           {pods: 4, restarted: true},
		"a budget never allows the eviction": {pods: 4, bake: 90 * time.Second, restarted: true, change: func(c *recreating) { c.budget = 1 << 30 }},
		"a budget allows the eviction later": {pods: 4, bake: 90 * time.Second, evicted: 1, restarted: true, change: func(c *recreating) { c.budget = 20 }},
		"the eviction is not allowed at all": {pods: 4, bake: 90 * time.Second, want: "it cannot be evicted: no right", change: func(c *recreating) {
			c.budget, c.denied = 1<<30, func() error { return errors.New("no right") }
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newRecreating(t, test.pods)
				if test.change != nil {
					test.change(c)
				}
				w := &rollout.Workload{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Pods: test.pods, Way: rollout.Restart}
				for i, name := range c.order {
					if test.behind > 0 && i >= test.behind {
						c.replace(name)
						continue
					}
					p := c.plan(t, c.pods[name])
					p.Action = rollout.Replace
					w.Behind = append(w.Behind, p)
				}
				l := newLimits(t, "25%", 5*time.Minute)
				l.Poll, l.Bake = time.Second, &test.bake
				r := &executor.Rollout{Cluster: c, Limits: l, Plan: func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.Plan(pod, nil) }}
				err := r.Run(t.Context(), []*rollout.Workload{w})
				if len(c.evicted) != test.evicted || c.restarted != test.restarted || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("evicted %v, restarted %t, %v; want %d, %t, %q", c.evicted, c.restarted, err, test.evicted, test.restarted, test.want)
				}
			})
		})
	}
}
