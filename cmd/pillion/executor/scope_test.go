// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// spaces is a cluster with a workload of each name. The part of a name before the dash is its namespace, and pods have
// the name of their workload and a number.
type spaces struct {
	*fake

	fails   string            // the workload whose changed pods are not ready
	unready string            // the workload that has a pod that is not ready, and needs no change
	open    map[string]int    // changed pods that are not recorded, by namespace
	most    map[string]int    // the most of them at a time
	titles  map[string]string // of workloads by pod
}

func newSpaces(t *testing.T, pods int, names ...string) (*spaces, []*rollout.Workload) {
	t.Helper()
	c := &spaces{fake: newFake(t, len(names)*pods), open: map[string]int{}, most: map[string]int{}, titles: map[string]string{}}
	var all []*rollout.Workload
	for i, name := range names {
		namespace, _, _ := strings.Cut(name, "-")
		w := &rollout.Workload{Namespace: namespace, Kind: "Deployment", Name: name, Pods: pods}
		for k := range pods {
			old := c.order[i*pods+k]
			pod := c.pods[old]
			delete(c.pods, old)
			pod.Name, pod.Namespace = fmt.Sprintf("%s-%d", name, k), namespace
			c.order[i*pods+k], c.pods[pod.Name], c.titles[pod.Name] = pod.Name, pod, name
			w.Behind = append(w.Behind, c.plan(t, pod))
		}
		w.Choose(rollout.Owner{})
		all = append(all, w)
	}
	c.kubelet = func(pod *corev1.Pod) {
		if c.titles[pod.Name] == c.fails {
			pod.Status.InitContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		}
	}
	return c, all
}

func (c *spaces) InspectWorkload(_ context.Context, w *rollout.Workload, _ *executor.Sight, each func(*corev1.Pod)) (*executor.Sight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &executor.Sight{Desired: w.Pods}
	for _, name := range c.order {
		if c.titles[name] == w.Name {
			each(c.pods[name].DeepCopy())
		}
	}
	if w.Name == c.unready {
		s.Desired++
	}
	return s, nil
}

// PatchPod counts the pods that are changed and not recorded.
func (c *spaces) PatchPod(ctx context.Context, p executor.Patch) error {
	err := c.fake.PatchPod(ctx, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.DryRun || err != nil {
		return err
	}
	namespace, _, _ := strings.Cut(c.titles[p.Name], "-")
	switch operations := string(p.Operations); {
	case strings.Contains(operations, "/image"):
		c.open[namespace]++
		c.most[namespace] = max(c.most[namespace], c.open[namespace])
	case strings.Contains(operations, "/metadata/annotations"):
		c.open[namespace]--
	}
	return nil
}

func (c *spaces) updated(t *testing.T, workload string) (n int) {
	t.Helper()
	for name, title := range c.titles {
		if title == workload && c.image(t, name) == "agent:2" {
			n++
		}
	}
	return n
}

func (c *spaces) executeRollout(t *testing.T, all []*rollout.Workload, change func(*executor.Limits)) ([]executor.Event, error) {
	t.Helper()
	l := newLimits(t, "1", 5*time.Minute)
	l.Parallel, l.Poll, l.Bake = 10, time.Second, nil
	change(&l)
	var events []executor.Event
	r := &executor.Rollout{
		Cluster: c, Limits: l, Report: func(e executor.Event) { events = append(events, e) },
		Plan: func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.Plan(pod, nil) },
	}
	return events, r.Run(t.Context(), all)
}

// TestScope checks that a pod that fails stops the rollout in its namespace, or everywhere if the limits say so, and that
// no wave follows before a pod has been proved.
func TestScope(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		change func(*executor.Limits)
		want   string // how many pods of a-bad, a-web, b-web and c-web have the change
	}{
		"in its namespace":          {func(*executor.Limits) {}, "1 1 3 3"},
		"the first pod, and waves":  {func(l *executor.Limits) { l.First, l.Shares = 1, []int{50, 100} }, "1 0 3 3"},
		"everywhere":                {func(l *executor.Limits) { l.StopAll = true }, "1 1 1 1"},
		"everywhere, the first pod": {func(l *executor.Limits) { l.StopAll, l.First = true, 1 }, "1 0 0 0"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, all := newSpaces(t, 3, "a-bad", "a-web", "b-web", "c-web")
				c.fails = "a-bad"
				events, err := c.executeRollout(t, all, test.change)
				if err == nil || !strings.Contains(err.Error(), "pod a-bad-0 in the namespace a: the container agent does not start") {
					t.Errorf("got %v", err)
				}
				var got []string
				for _, w := range all {
					got = append(got, fmt.Sprint(c.updated(t, w.Name)))
				}
				if strings.Join(got, " ") != test.want {
					t.Errorf("%s pods of the workloads have the change, want %s: %+v", got, test.want, events)
				}
			})
		})
	}
}

// TestBlocked checks that a workload whose pods are not ready for another reason does not stop others, and that no pod is
// said to have failed.
func TestBlocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, all := newSpaces(t, 2, "a-blocked", "a-web")
		c.unready = "a-blocked"
		events, err := c.executeRollout(t, all, func(*executor.Limits) {})
		if err == nil || !strings.Contains(err.Error(), "pod a-blocked-0 in the namespace a: it is not changed after 5m0s: it waits for 1 pod to be ready") {
			t.Errorf("got %v", err)
		}
		if c.updated(t, "a-blocked") != 0 || c.updated(t, "a-web") != 2 {
			t.Errorf("%d and %d pods have the change", c.updated(t, "a-blocked"), c.updated(t, "a-web"))
		}
		for _, e := range events {
			if e.Type == "failed" && !e.Blocked {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestSharedBudget checks that workloads of a namespace share the disruptions that a budget allows, also while their pods
// are ready and not proved.
func TestSharedBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, all := newSpaces(t, 3, "a-one", "a-two", "b-web", "b-zoo")
		c.budgets = []executor.Budget{{Name: "all", Selector: labels.Everything(), Allowed: 1}}
		if _, err := c.executeRollout(t, all, func(*executor.Limits) {}); err != nil {
			t.Fatal(err)
		}
		if c.most["a"] != 1 || c.most["b"] != 1 {
			t.Errorf("%v pods of the namespaces were changed and not proved at the same time, want 1", c.most)
		}
	})
}

// TestGone checks that pods that are being deleted, and those that no longer exist, are reported as gone and are not
// changed.
func TestGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, all := newSpaces(t, 3, "a-web")
		now := c.pods["a-web-0"].CreationTimestamp
		c.pods["a-web-0"].DeletionTimestamp = &now
		c.order = c.order[:2] // the third one no longer exists
		all[0].Pods = 1       // a user has scaled it
		events, err := c.executeRollout(t, all, func(*executor.Limits) {})
		if err != nil {
			t.Fatal(err)
		}
		gone := 0
		for _, e := range events {
			if e.Type == "gone" {
				gone++
			}
		}
		if last := events[len(events)-1]; gone != 2 || c.updated(t, "a-web") != 1 || last.Done != 3 || last.Total != 3 {
			t.Errorf("%d are gone, %d have the change: %+v", gone, c.updated(t, "a-web"), events)
		}
	})
}

// TestFallsLater checks that a pod that was proved is inspected again before each wave and at the end.
func TestFallsLater(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		after time.Duration
		last  int // how many pods of the last wave have the change
	}{"before a wave": {2 * time.Minute, 0}, "at the end": {4 * time.Minute, 1}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, all := newSpaces(t, 1, "a-one", "b-two", "c-three")
				time.AfterFunc(test.after, func() {
					c.mu.Lock()
					defer c.mu.Unlock()
					c.pods["a-one-0"].Status.Conditions[0].Status = corev1.ConditionFalse
				})
				_, err := c.executeRollout(t, all, func(l *executor.Limits) { l.First, l.Shares, l.StopAll = 1, []int{67, 100}, true })
				if err == nil || !strings.Contains(err.Error(), "pod a-one-0 in the namespace a: it was ready with the change for") || errors.Is(err, executor.ErrStopped) {
					t.Errorf("got %v", err)
				}
				if n := c.updated(t, "c-three"); n != test.last {
					t.Errorf("%d pods of the last wave have the change, want %d", n, test.last)
				}
			})
		})
	}
}
