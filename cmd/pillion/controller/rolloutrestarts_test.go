// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// daemons are DaemonSets with a pod each. The new pods do not start.
type daemons struct {
	replicaSet
	names     []string
	restarted []string
}

func (d *daemons) Restart(_ context.Context, w *rollout.Workload) (time.Time, error) {
	d.restarted = append(d.restarted, w.Name)
	d.create("new-"+w.Name, currentLabel, corev1.ConditionFalse)
	now := metav1.Now()
	pod := d.pods["new-"+w.Name]
	pod.Labels["app"], pod.CreationTimestamp = w.Name, now
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
	return now.Time, nil
}

func (d *daemons) Workload(_ context.Context, w *rollout.Workload) (*unstructured.Unstructured, error) {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": w.Kind, "metadata": map[string]any{"name": w.Name},
		"spec":   map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": w.Name}}},
		"status": map[string]any{"desiredNumberScheduled": int64(1), "updatedNumberScheduled": int64(1), "numberAvailable": int64(0)},
	}}, nil
}

// workloads are those whose pods are not replaced. What runs in the new pods is current.
func (d *daemons) workloads() (all []*rollout.Workload) {
	for _, name := range d.names[len(d.restarted):] {
		w := &rollout.Workload{Namespace: "shop", APIVersion: "apps/v1", Kind: "DaemonSet", Name: name, Pods: 1}
		w.Behind = []*rollout.Pod{{Namespace: "shop", Name: "old-" + name, UID: "old-" + name, Action: rollout.Replace, Why: "its args differ", Labels: map[string]string{"app": name}}}
		w.Choose(rollout.Owner{Restarts: true})
		all = append(all, w)
	}
	return all
}

// TestRolloutRestarts checks that a restart whose new pods do not start is the last one, although no pod of the workload
// is behind any more. It continues when the pod is ready.
func TestRolloutRestarts(t *testing.T) {
	d := &daemons{replicaSet: replicaSet{pods: map[string]*corev1.Pod{}}, names: []string{"aa", "ab"}}
	r := newRolled()
	r.rollout(map[string]any{"strategy": "InPlaceOrRestart", "bake": "0s"})
	r.workloads, r.cluster = d.workloads, d
	r.limits = executor.Limits{Parallel: 10, Timeout: time.Minute, Poll: time.Millisecond}
	r.run = func(ctx context.Context, u *executor.Rollout, all []*rollout.Workload) error { return u.Run(ctx, all) }
	reconcileOften := func() {
		for range 4 {
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: r.of})
			if err != nil {
				t.Fatal(err)
			}
			r.clock = r.clock.Add(max(result.RequeueAfter, time.Second))
		}
	}
	reconcileOften()
	if fmt.Sprint(d.restarted) != "[aa]" {
		t.Fatalf("restarted %v, want aa only:\n%s", d.restarted, r.journal.String())
	}
	d.pods["new-aa"].Status.Conditions[0].Status = corev1.ConditionTrue
	reconcileOften()
	if fmt.Sprint(d.restarted) != "[aa ab]" {
		t.Errorf("restarted %v, want both:\n%s", d.restarted, r.journal.String())
	}
}
