// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// replicaSet is a ReplicaSet without a Deployment, whose pods are evicted. A label has their revision.
type replicaSet struct {
	executor.Cluster
	pods    map[string]*corev1.Pod
	made    int
	evicted []string
	ready   bool   // new pods become ready
	label   string // of new pods
}

const (
	behindLabel  = "behind"
	currentLabel = "current"
)

func (c *replicaSet) create(name, label string, ready corev1.ConditionStatus) {
	controls := true
	c.pods[name] = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{label: ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: &controls}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func (c *replicaSet) Pod(_ context.Context, _, name string) (*unstructured.Unstructured, error) {
	p := c.pods[name]
	if p == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	return &unstructured.Unstructured{Object: out}, err
}

func (c *replicaSet) EachPod(_ context.Context, _ string, _ metav1.ListOptions, each func(*corev1.Pod) error) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		if err := each(c.pods[name].DeepCopy()); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (c *replicaSet) Watch(context.Context, *rollout.Workload, *executor.Sight) <-chan struct{} {
	return nil
}

func (c *replicaSet) InspectWorkload(ctx context.Context, _ *rollout.Workload, _ *executor.Sight, each func(*corev1.Pod)) (*executor.Sight, error) {
	_, err := c.EachPod(ctx, "", metav1.ListOptions{}, func(pod *corev1.Pod) error { each(pod); return nil })
	return &executor.Sight{Desired: -1}, err
}

func (c *replicaSet) ClaimPod(ctx context.Context, pod *corev1.Pod, _ rollout.Claim) (*unstructured.Unstructured, error) {
	return c.Pod(ctx, pod.Namespace, pod.Name)
}

func (c *replicaSet) Budgets(context.Context, string) ([]executor.Budget, error) { return nil, nil }

func (c *replicaSet) Failure(context.Context, *corev1.Pod, string, time.Time) string { return "" }

func (c *replicaSet) Symptom(context.Context, *corev1.Pod, string) string { return "" }

func (c *replicaSet) Evict(_ context.Context, _, name, _ string) error {
	c.evicted = append(c.evicted, name)
	delete(c.pods, name)
	c.made++
	status := corev1.ConditionFalse
	if c.ready {
		status = corev1.ConditionTrue
	}
	c.create(fmt.Sprintf("new-%d", c.made), c.label, status)
	return nil
}

func (c *replicaSet) workloads() []*rollout.Workload {
	w := &rollout.Workload{Namespace: "shop", APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Pods: len(c.pods)}
	for _, p := range c.pods {
		if _, behind := p.Labels[behindLabel]; behind {
			w.Behind = append(w.Behind, &rollout.Pod{Namespace: "shop", Name: p.Name, UID: string(p.UID), Ready: rollout.IsReady(p), Action: rollout.Replace, Why: "its args differ"})
		}
	}
	if len(w.Behind) == 0 {
		return nil
	}
	slices.SortFunc(w.Behind, func(a, b *rollout.Pod) int { return strings.Compare(a.Name, b.Name) })
	w.Choose(rollout.Owner{Recreates: true})
	return []*rollout.Workload{w}
}

// TestRolloutEvicts checks that an eviction is the last one if the new pod does not become ready, or is not current.
func TestRolloutEvicts(t *testing.T) {
	for what, c := range map[string]*replicaSet{
		"not ready":   {label: currentLabel},
		"not current": {label: behindLabel, ready: true},
	} {
		for _, pods := range []int{1, 3} {
			t.Run(fmt.Sprint(what, ", pods: ", pods), func(t *testing.T) {
				c := *c
				c.pods = map[string]*corev1.Pod{}
				for i := range pods {
					c.create(fmt.Sprintf("old-%d", i), behindLabel, corev1.ConditionTrue)
				}
				r := newRolled()
				r.rollout(map[string]any{"strategy": "InPlaceOrRestart", "maxUnavailable": int64(1), "bake": "0s"})
				r.workloads, r.cluster = c.workloads, &c
				r.limits = executor.Limits{Parallel: 10, Timeout: 20 * time.Millisecond, Poll: time.Millisecond}
				r.run = func(ctx context.Context, u *executor.Rollout, all []*rollout.Workload) error {
					u.Plan = func(_ string, text []byte) (*rollout.Pod, error) {
						p := &rollout.Pod{Namespace: "shop", Name: fmt.Sprintf("new-%d", c.made), Action: rollout.None}
						if strings.Contains(string(text), behindLabel) {
							p.Action, p.State = rollout.Replace, "outdated"
						}
						return p, nil
					}
					return u.Run(ctx, all)
				}
				for range 8 {
					result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: r.of})
					if err != nil {
						t.Fatal(err)
					}
					r.clock = r.clock.Add(max(result.RequeueAfter, time.Second))
				}
				if len(c.evicted) != 1 || !strings.Contains(r.journal.String(), "pod: new-1") {
					t.Errorf("%v were evicted, want the first one only:\n%s", c.evicted, r.journal.String())
				}
			})
		}
	}
}

// TestRolloutOthers checks that a rollout goes on if namespaces come and go in which it changes nothing.
func TestRolloutOthers(t *testing.T) {
	r := newRolled()
	r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
	r.namespaces = []string{"preview-1", "shop"}
	r.run = func(_ context.Context, u *executor.Rollout, _ []*rollout.Workload) error {
		r.Lock()
		r.namespaces, r.lists = []string{"preview-2", "shop"}, 0
		r.Unlock()
		for lists := -1; lists < 3; { // until the controller has seen the change
			r.Lock()
			if r.lists != lists {
				r.clock, lists = r.clock.Add(recheckEvery), r.lists
			}
			r.Unlock()
			select {
			case <-u.Stop:
				return &executor.FailedError{Cause: executor.ErrStopped}
			case <-time.After(time.Millisecond):
			}
		}
		r.workloads = func() []*rollout.Workload { return nil }
		return nil
	}
	r.reconcile(t)
	if !strings.Contains(r.journal.String(), "reason: Complete") {
		t.Errorf("the rollout was stopped:\n%s", r.journal.String())
	}
}

// TestRolloutStuck checks that a workload that never ends to replace its pods does not cause many plans.
func TestRolloutStuck(t *testing.T) {
	r := newRolled()
	r.workloads = func() []*rollout.Workload {
		w := web("web")
		w.Way = rollout.Await
		return []*rollout.Workload{w}
	}
	for end := r.clock.Add(time.Hour); r.clock.Before(end); {
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: r.of})
		if err != nil {
			t.Fatal(err)
		}
		r.clock = r.clock.Add(result.RequeueAfter)
	}
	if r.plans < 6 || r.plans > 12 {
		t.Errorf("%d plans in an hour", r.plans)
	}
}
