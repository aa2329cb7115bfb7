// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// recreating is a cluster with a controller that replaces pods: those of a Deployment after a restart, and
// an evicted one.
type recreating struct {
	*fake
	kind      string // of the workload
	steps     int    // reads of the Deployment until its pods are replaced
	restarted bool
	by        *inject.Injector // what injects new pods
	stuck     bool             // new pods do not start
	homeless  bool             // no node has room for new pods
	budget    int              // evictions that are denied first
	evicted   []string
	missing   bool
	skew      time.Duration // how far the API server's clock is ahead
	selects   string        // another label that the Deployment selects
	stop      chan struct{} // closed when the Deployment is read
	planned   func()        // after the plan, before the rollout
	denied    func() error  // if a budget denies an eviction; an error is returned instead
	evicts    func(name string)
}

func newRecreating(t *testing.T, pods int) *recreating {
	t.Helper()
	c := &recreating{fake: newFake(t, pods), steps: 3}
	c.by = c.planner.Injector
	controls := true
	for _, pod := range c.pods {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: &controls}}
	}
	return c
}

func (c *recreating) Restart(context.Context, *rollout.Workload) (time.Time, error) {
	c.restarted = true
	return time.Now().Add(c.skew), nil
}

func (c *recreating) Workload(context.Context, *rollout.Workload) (*unstructured.Unstructured, error) {
	if c.missing {
		return nil, apierrors.NewNotFound(corev1.Resource("deployments"), "web")
	}
	if c.stop != nil && c.steps == 1<<30 {
		close(c.stop)
	}
	if c.steps--; c.steps == 0 && !c.stuck {
		for _, name := range c.order {
			c.replace(name)
		}
	}
	if c.steps < 2 && c.stuck {
		c.replace(c.order[0])
		pod := c.pods[c.order[0]]
		pod.Status.InitContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no agent:2"}}
	}
	if c.steps == 1 && c.homeless {
		c.replace(c.order[0])
		c.pods[c.order[0]].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}}
		c.steps = 1 << 30
	}
	n, updated := len(c.order), 0
	if c.steps <= 0 && !c.stuck {
		updated = n
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "generation": int64(2)},
		"spec":   map[string]any{"replicas": int64(n), "selector": map[string]any{"matchLabels": c.labels()}},
		"status": map[string]any{"observedGeneration": int64(2), "replicas": int64(n), "updatedReplicas": int64(updated), "availableReplicas": int64(n)},
	}}, nil
}

// labels returns those that the Deployment selects. Its pods have none.
func (c *recreating) labels() map[string]any {
	if c.selects == "" {
		return map[string]any{}
	}
	return map[string]any{c.selects: ""}
}

// replace creates another pod of the same name.
func (c *recreating) replace(name string) {
	old := c.pods[name]
	bare := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("new-" + name), CreationTimestamp: metav1.NewTime(time.Now().Add(c.skew)), OwnerReferences: old.OwnerReferences},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	text, _ := json.Marshal(bare)
	r, err := c.by.Inject(inject.Request{Operation: "CREATE", Namespace: c.planner.Namespace, Object: text, OptedIn: true})
	if err != nil {
		panic(err)
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(r.InjectedJSON(), pod); err != nil {
		panic(err)
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{owner("kube-controller-manager", pod.CreationTimestamp)}
	well(pod)
	c.pods[name] = pod
}

func (c *recreating) EachPod(_ context.Context, _ string, _ metav1.ListOptions, each func(*corev1.Pod) error) (string, error) {
	for _, name := range c.order {
		if err := each(c.pods[name].DeepCopy()); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (c *recreating) Evict(_ context.Context, _, name, uid string) error {
	if c.budget--; c.budget >= 0 {
		if c.denied != nil {
			if err := c.denied(); err != nil {
				return err
			}
		}
		return apierrors.NewTooManyRequests("the budget", 1)
	}
	if string(c.pods[name].UID) != uid {
		return apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("another pod"))
	}
	c.evicted = append(c.evicted, name)
	c.replace(name)
	if c.evicts != nil {
		c.evicts(name)
	}
	return nil
}

// update runs a rollout of one workload, in a way that the test chooses.
func (c *recreating) update(t *testing.T, way rollout.Way, timeout time.Duration) error {
	t.Helper()
	w := &rollout.Workload{Namespace: "shop", APIVersion: "apps/v1", Kind: cmp.Or(c.kind, "Deployment"), Name: "web", Pods: len(c.order), Way: way}
	for _, name := range c.order {
		p := c.plan(t, c.pods[name])
		p.Action = rollout.Replace
		w.Behind = append(w.Behind, p)
	}
	if c.planned != nil {
		c.planned()
	}
	r := &executor.Rollout{
		Cluster: c, Limits: newLimits(t, "1", timeout),
		Plan: func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.Plan(pod, nil) },
		Stop: c.stop,
	}
	return r.Run(t.Context(), []*rollout.Workload{w})
}

// TestRestart restarts a workload and waits for it.
func TestRestart(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		change func(*recreating)
		want   string
	}{
		"well":                        {func(*recreating) {}, ""},
		"stuck":                       {func(c *recreating) { c.stuck = true }, "its new pod web-0: the container agent does not start: ErrImagePull: no agent:2"},
		"no progress":                 {func(c *recreating) { c.steps = 1 << 30 }, "has not progressed for 200ms: it waits for 2 of 2 pods to be replaced; half done: Deployment/web"},
		"no node":                     {func(c *recreating) { c.homeless = true }, "it waits for a node for its new pod web-0: 0/1 nodes are available; half done"},
		"stuck StatefulSet":           {func(c *recreating) { c.kind, c.steps = "StatefulSet", 1<<30; c.unready() }, "it waits for 2 of 2 pods to be replaced; its pod web-0 is not ready, and a StatefulSet does not replace such a pod, so delete it"},
		"old template":                {func(c *recreating) { c.by = c.old }, "its new pod web-0 is outdated; maybe not all replicas"},
		"deleted":                     {func(c *recreating) { c.missing = true }, ""},
		"old template, another clock": {func(c *recreating) { c.by, c.skew = c.old, -time.Hour }, "its new pod web-0 is outdated; maybe not all replicas"},
		"other labels":                {func(c *recreating) { c.selects = "app" }, "was restarted, but not its pod web-0, whose labels it does not select"},
		"told to stop":                {func(c *recreating) { c.steps, c.stop = 1<<30, make(chan struct{}) }, "stopped; half done: Deployment/web in the namespace shop (restarted, not complete)"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newRecreating(t, 2)
			test.change(c)
			timeout := time.Minute // the others end long before, however slow the machine is
			if slices.Contains([]string{"no progress", "no node", "stuck StatefulSet"}, what) {
				timeout = 200 * time.Millisecond
			}
			err := c.update(t, rollout.Restart, timeout)
			if !c.restarted || (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) && test.want != "" {
				t.Errorf("restarted %t, %v; want %q", c.restarted, err, test.want)
			}
		})
	}
}

// TestEvict evicts pods, one after another, when their budget allows it.
func TestEvict(t *testing.T) {
	t.Parallel()
	c := newRecreating(t, 3)
	c.budget = 2
	if err := c.update(t, rollout.Evict, 10*time.Second); err != nil || strings.Join(c.evicted, " ") != "web-0 web-1 web-2" {
		t.Errorf("evicted %v, %v", c.evicted, err)
	}
	c = newRecreating(t, 2)
	c.budget = 1 << 30
	if err := c.update(t, rollout.Evict, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "PodDisruptionBudget has not allowed") || len(c.evicted) > 0 {
		t.Errorf("evicted %v, %v", c.evicted, err)
	}
	c = newRecreating(t, 2)
	c.by = c.old
	if err := c.update(t, rollout.Evict, 10*time.Second); err == nil || !strings.Contains(err.Error(), "pod web-0 in the namespace shop: it replaces web-0, which was evicted: it is outdated") || len(c.evicted) != 1 {
		t.Errorf("evicted %v, %v", c.evicted, err)
	}
}
