// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
)

// TestOtherPod checks that a pod which has taken the name of a planned one is not changed.
func TestOtherPod(t *testing.T) {
	t.Parallel()
	c := newFake(t, 2)
	events := c.runRollout(t, func(r *executor.Rollout) {
		firstWorkload(t, r)
		r.Pause = func(context.Context, int, []rollout.Part) error {
			c.pods["web-1"].UID = "other"
			return nil
		}
	})
	last := events[len(events)-1]
	if image := c.image(t, "web-1"); image != "agent:1" || last.Type != "gone" {
		t.Errorf("the image is %s, and the last event %+v", image, last)
	}
}

// TestReplacedWhileAwaited checks that a rollout does not wait for a pod that is replaced while it changes.
func TestReplacedWhileAwaited(t *testing.T) {
	t.Parallel()
	c := newFake(t, 1)
	changes := 0
	c.kubelet = func(pod *corev1.Pod) {
		if changes++; changes == 2 { // the image, and the memory
			pod.UID = "other"
			pod.Status.InitContainerStatuses[0].Ready = false
		}
	}
	var events []executor.Event
	err := c.tryRun(t, func(r *executor.Rollout) { r.Limits.Timeout = time.Minute }, &events)
	if last := events[len(events)-1]; err != nil || last.Type != "gone" {
		t.Errorf("%v, and the last event is %+v", err, last)
	}
}

// TestBudgetSelects checks that only budgets for a pod's labels hold it, and only if it restarts a container.
func TestBudgetSelects(t *testing.T) {
	t.Parallel()
	other, err := labels.Parse("app=other")
	must(t, err)
	c := newFake(t, 1)
	c.budgets = []executor.Budget{{Name: "other", Selector: other}}
	if err := c.tryRun(t, func(r *executor.Rollout) { r.Limits.Timeout = time.Minute }); err != nil {
		t.Errorf("a budget for other pods: %v", err)
	}
	c = newFake(t, 1)
	set, err := templates.Load(templates.Source{Name: "agent.yaml", Data: []byte(strings.NewReplacer("agent:%d", "agent:1", "%dMi", "64Mi").Replace(agent))})
	must(t, err)
	c.planner.Injector = inject.New(set)
	c.budgets = []executor.Budget{{Name: "web", Selector: labels.Everything()}}
	if err := c.tryRun(t, func(r *executor.Rollout) { r.Limits.Timeout = time.Minute }); err != nil {
		t.Errorf("a resize, which restarts nothing: %v", err)
	}
}

// TestStopsWaiting checks that a rollout that has to stop no longer waits for a budget, and reports no failure.
func TestStopsWaiting(t *testing.T) {
	t.Parallel()
	c := newFake(t, 1)
	c.budgets = []executor.Budget{{Name: "web", Selector: labels.Everything()}}
	stop := make(chan struct{})
	var once sync.Once
	var types []string
	err := c.tryRun(t, func(r *executor.Rollout) {
		r.Stop, r.Patience, r.Limits.Timeout = stop, time.Nanosecond, time.Minute
		r.Report = func(e executor.Event) {
			if types = append(types, e.Type); e.Type == "waiting" {
				once.Do(func() { close(stop) })
			}
		}
	})
	if !errors.Is(err, executor.ErrStopped) || slices.Contains(types, "failed") {
		t.Errorf("%v after the events %q", err, types)
	}
}

// TestMinReady checks that a pod must be ready all the time for as long as it has to be, and that this is no lack of
// progress.
func TestMinReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, begun := newFake(t, 1), time.Now()
		must(t, c.tryRun(t, func(r *executor.Rollout) {
			r.Limits.MinReady, r.Limits.Timeout, r.Limits.Poll = time.Hour, time.Minute, time.Second
		}))
		if lasted := time.Since(begun); lasted < time.Hour || lasted > time.Hour+time.Minute {
			t.Errorf("the rollout took %s", lasted)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newFake(t, 1)
		c.symptom = "Readiness probe failed: no answer"
		go func() {
			<-time.After(10 * time.Minute)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.unready()
		}()
		err := c.tryRun(t, func(r *executor.Rollout) { r.Limits.MinReady, r.Limits.Poll = time.Hour, time.Second })
		if want := "pod web-0 in the namespace shop: it was ready with the change for 10m"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), c.symptom) || !strings.Contains(err.Error(), "half done: pod web-0") {
			t.Errorf("a pod that is not ready any more: %v", err)
		}
	})
}

// TestChangesEndAWait checks that a rollout inspects its pods again as soon as a pod has changed, and not only when it would anyway, but not
// at once for each of many changes.
func TestChangesEndAWait(t *testing.T) {
	t.Parallel()
	const poll = time.Hour
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, begun := newFake(t, 5), time.Now()
			changes := make(chan struct{}, 1)
			if watched {
				c.changes = changes
			}
			c.kubelet = func(pod *corev1.Pod) {
				pod.Status.Conditions[0].Status = corev1.ConditionFalse
				for i := range 10 { // it reports ten times
					time.AfterFunc(time.Duration(i)*time.Second, func() {
						c.mu.Lock()
						defer c.mu.Unlock()
						if i == 9 {
							well(c.pods[pod.Name])
						}
						select {
						case changes <- struct{}{}:
						default:
						}
					})
				}
			}
			c.runRollout(t, func(r *executor.Rollout) {
				r.Limits.MaxUnavailable, r.Limits.Poll, r.Limits.Timeout = newLimits(t, "1", 0).MaxUnavailable, poll, 100*poll
			})
			inspections := 0
			for _, call := range c.calls {
				if strings.HasPrefix(call, "inspect") {
					inspections++
				}
			}
			if lasted := time.Since(begun); watched != (lasted < 5*poll) || inspections > 30 {
				t.Errorf("watched: %t; the rollout of 5 pods took %s and inspected %d times", watched, lasted, inspections)
			}
		})
	}
}

// TestProvedAtOnce checks that a pod that is proved at the first inspection may be unready for a moment after that, for example while its kubelet
// starts the container again, but not for long.
func TestProvedAtOnce(t *testing.T) {
	t.Parallel()
	for _, unready := range []time.Duration{20 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := newFake(t, 3)
			c.kubelet = func(pod *corev1.Pod) {
				well(pod)
				set := func(after time.Duration, status corev1.ConditionStatus) {
					time.AfterFunc(after, func() {
						c.mu.Lock()
						defer c.mu.Unlock()
						c.pods[pod.Name].Status.Conditions[0].Status = status
						c.pods[pod.Name].Status.Conditions[0].LastTransitionTime = metav1.Now()
					})
				}
				set(1500*time.Millisecond, corev1.ConditionFalse)
				set(1500*time.Millisecond+unready, corev1.ConditionTrue)
			}
			err := c.tryRun(t, func(r *executor.Rollout) {
				r.Limits.MaxUnavailable, r.Limits.Poll, r.Limits.Timeout = newLimits(t, "1", 0).MaxUnavailable, time.Second, time.Minute
			})
			if lasts := unready == time.Hour; lasts != (err != nil) || lasts && !strings.Contains(err.Error(), "is not any more") {
				t.Errorf("pods that are unready for %s: %v", unready, err)
			}
		})
	}
}

// TestUnreadyFirst checks that pods that are not ready, which may need the change, are the first ones.
func TestUnreadyFirst(t *testing.T) {
	t.Parallel()
	c := newFake(t, 4)
	c.pods["web-3"].Status.Conditions[0].Status = corev1.ConditionFalse
	var order []string
	for _, e := range c.runRollout(t, func(r *executor.Rollout) { r.Limits.MaxUnavailable = newLimits(t, "1", 0).MaxUnavailable }) {
		if e.Type == "pod" {
			order = append(order, e.Pod)
		}
	}
	if want := []string{"web-0", "web-3", "web-1", "web-2"}; !slices.Equal(order, want) {
		t.Errorf("changed in the order %q, want %q", order, want)
	}
}

// TestBudgets checks that a budget that its controller has not processed yet allows nothing.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for observed, want := range map[int64]int{1: 0, 2: 3} {
		budget := policyv1.PodDisruptionBudget{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 2}}
		budget.Status.DisruptionsAllowed, budget.Status.ObservedGeneration = 3, observed
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(policyv1.PodDisruptionBudgetList{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"}, Items: []policyv1.PodDisruptionBudget{budget}})
		}))
		t.Cleanup(server.Close)
		d, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
		must(t, err)
		all, err := executor.Kubernetes{Interface: d}.Budgets(t.Context(), "shop")
		must(t, err)
		if len(all) != 1 || all[0].Allowed != want {
			t.Errorf("generation 2, of which %d is processed: %+v, want %d", observed, all, want)
		}
	}
}
