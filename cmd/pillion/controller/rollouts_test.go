// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// rolled is an API with a template, a plan that the test chooses, and a clock.
type rolled struct {
	*api
	*rollouts
	executor.Cluster

	sync.Mutex // for what is read while pods are updated

	of         types.NamespacedName
	namespaces []string
	listErr    error
	workloads  func() []*rollout.Workload // a plan
	runErr     error
	during     func() // while pods are updated
	pods       map[string]*corev1.Pod
	counts     v1alpha1.PodCounts
	clock      time.Time
	plans      int
	lists      int // of the namespaces
}

func newRolled() *rolled {
	a := &api{objects: map[types.NamespacedName]*unstructured.Unstructured{}}
	r := &rolled{
		api: a, of: types.NamespacedName{Name: "agent"}, namespaces: []string{"shop"}, pods: map[string]*corev1.Pod{},
		clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	r.workloads = func() []*rollout.Workload { return nil }
	r.rollouts = &rollouts{
		read: r, event: a.event, cluster: r,
		apply: func(ctx context.Context, status *unstructured.Unstructured) error {
			r.Lock()
			defer r.Unlock()
			return a.applyRollout(ctx, status)
		},
		namespaces: func(context.Context) ([]string, error) {
			r.Lock()
			defer r.Unlock()
			r.lists++
			return r.namespaces, r.listErr
		},
		plan: func(_ context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error) {
			r.Lock()
			defer r.Unlock()
			r.plans++
			fmt.Fprintf(&a.journal, "plan: %s %+v\n", namespaces, b)
			return &cluster.Targets{Workloads: r.workloads()}, nil
		},
		run:     r.updatePods,
		count:   func(types.NamespacedName, string, ...string) v1alpha1.PodCounts { return r.counts },
		counted: func(types.NamespacedName) {},
		now: func() time.Time {
			r.Lock()
			defer r.Unlock()
			return r.clock
		},
		log: slog.New(slog.DiscardHandler), planned: map[types.NamespacedName]planned{}, wrote: map[types.NamespacedName]wrote{},
	}
	a.put("", "one")
	r.rollout(map[string]any{"strategy": "InPlace", "maxUnavailable": int64(3)})
	return r
}

// Get implements [reader].
func (r *rolled) Get(name types.NamespacedName) (*kube.Entry, bool) {
	r.Lock()
	defer r.Unlock()
	return r.api.Get(name)
}

// Of implements [reader].
func (r *rolled) Of(namespace string) []*kube.Entry {
	r.Lock()
	defer r.Unlock()
	return r.api.Of(namespace)
}

// applyRollout stores conditions and what has failed, as the API server does for their owner.
func (a *api) applyRollout(ctx context.Context, status *unstructured.Unstructured) error {
	o := a.objects[types.NamespacedName{Name: status.GetName()}]
	ready, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err := a.apply(ctx, status); err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return unstructured.SetNestedSlice(o.Object, append(ready[:1:1], conditions...), "status", "conditions")
}

// rollout changes the settings of the rollout, or the content. New pods get it.
func (r *rolled) rollout(settings map[string]any) {
	o := r.objects[r.of]
	o.Object["spec"].(map[string]any)["rollout"] = settings
	o.SetGeneration(o.GetGeneration() + 1)
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	ready := map[string]any{"type": "Ready", "status": "True", "reason": "Valid", "message": "", "observedGeneration": o.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z"}
	if len(conditions) == 0 {
		conditions = []any{nil}
	}
	conditions[0] = ready
	_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
}

// canary creates a template that replaces the other one.
func (r *rolled) canary() {
	o := r.objects[r.of].DeepCopy()
	o.SetName("next")
	o.SetUID("2")
	o.Object["spec"].(map[string]any)["replaces"] = r.of.Name
	r.objects[types.NamespacedName{Name: "next"}] = o
}

// updatePods plays the executor.
func (r *rolled) updatePods(ctx context.Context, u *executor.Rollout, all []*rollout.Workload) error {
	left, taken := rollout.Parts(all), 0
	for i, end := range u.Limits.Ends(left) {
		var wave []rollout.Part
		wave, left = rollout.TakeWave(left, end-taken)
		taken = end
		names := ""
		for _, w := range wave {
			names += " " + w.Namespace + " " + w.Title()
		}
		u.Report(executor.Event{Type: "wave", Message: fmt.Sprintf("wave %d:%s", i+1, names), Total: 3})
		if r.during != nil {
			r.Lock()
			r.during()
			r.Unlock()
			select {
			case <-u.Stop:
			case <-ctx.Done():
			}
			return &executor.FailedError{Cause: executor.ErrStopped}
		}
	}
	if r.runErr == nil {
		r.workloads = func() []*rollout.Workload { return nil } // all is done
	} else {
		u.Report(executor.Event{Type: "failed", Namespace: "shop", Workload: "Deployment/web", Pod: "web-1", Message: r.runErr.Error(), Err: r.runErr})
	}
	rules := rollout.Limits{}.Rules(u.Limits.Limits, u.Limits.Timeout)
	fmt.Fprintf(&r.journal, "at most %d of 10 pods, each watched for %s\n", rules.MaxUnavailable[0].Of(10), rules.Proof)
	return r.runErr
}

func (r *rolled) Pod(_ context.Context, _, name string) (*unstructured.Unstructured, error) {
	pod, ok := r.pods[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	return &unstructured.Unstructured{Object: out}, err
}

// reconcile runs until nothing is left to do at once.
func (r *rolled) reconcile(t *testing.T) {
	t.Helper()
	for range 20 {
		r.clock = r.clock.Add(time.Second)
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: r.of})
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
			return
		}
	}
	t.Fatal("it never waits")
}

// web is a workload with a pod to change.
func web(name string) *rollout.Workload {
	w := &rollout.Workload{Namespace: "shop", Kind: "Deployment", Name: name, Pods: 1, Behind: []*rollout.Pod{{
		Name: name + "-1", Namespace: "shop", Action: rollout.Patch, Own: []string{"agent"},
		Changes: []rollout.Change{{How: rollout.InPlace, Path: "/spec/initContainers/agent/image"}, {How: rollout.Record}},
	}}}
	w.Choose(rollout.Owner{Restarts: true})
	return w
}

// half is a workload with a pod whose change is not recorded.
func half(name string) *rollout.Workload {
	w := web(name)
	w.Behind[0].Changes = w.Behind[0].Changes[1:]
	return w
}

// TestRollouts checks what the controller does in the life of a rollout, in testdata/rollouts.txt.
func TestRollouts(t *testing.T) {
	r := newRolled()
	once := func(all ...*rollout.Workload) {
		r.workloads = func() []*rollout.Workload { now := all; all = nil; return now }
	}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"two workloads, and one that is half done", func() { once(web("web"), half("zoo")) }},
		{"nothing has changed", func() {}},
		{"a user deploys a new version of a workload", func() {
			w := web("web")
			w.Way = rollout.Await
			once(w)
			r.rollout(map[string]any{"strategy": "InPlaceOrRestart"})
		}},
		{"it is paused", func() { r.rollout(map[string]any{"strategy": "InPlace", "paused": true}); once(web("web")) }},
		{"it is resumed, and a pod fails", func() {
			r.rollout(map[string]any{"strategy": "InPlace"})
			r.runErr = errors.New("pod web-1 in the namespace shop: the container agent does not start: ImagePullBackOff")
			r.workloads = func() []*rollout.Workload { return []*rollout.Workload{half("web"), web("zoo")} }
		}},
		{"it remains stopped", func() { r.clock = r.clock.Add(time.Hour) }},
		{"it is paused meanwhile", func() { r.rollout(map[string]any{"strategy": "InPlace", "paused": true}) }},
		{"the template changes", func() {
			r.rollout(map[string]any{"strategy": "InPlace"})
			r.runErr = nil
			once(half("web"))
		}},
		{"no namespace has the label", func() { r.namespaces = nil; r.clock = r.clock.Add(time.Hour) }},
		{"the controller lacks the right to list namespaces", func() {
			r.clock = r.clock.Add(time.Hour)
			r.listErr = apierrors.NewForbidden(corev1.Resource("namespaces"), "", errors.New(`User "x" cannot list resource "namespaces" in API group "" at the cluster scope`))
		}},
		{"it gets it, but not that to patch pods", func() {
			r.clock = r.clock.Add(time.Hour)
			r.listErr, r.namespaces = nil, []string{"shop"}
			r.runErr = apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New(`User "x" cannot patch resource "pods" in API group "" in the namespace "shop"`))
			r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
		}},
		{"the strategy is OnCreate", func() { r.rollout(map[string]any{}) }},
		{"it is deleted", func() { delete(r.objects, r.of) }},
	} {
		step.do()
		fmt.Fprintf(&r.journal, "# %s\n", step.what)
		r.reconcile(t)
	}
	golden.File(t, "testdata/rollouts.txt", []byte(r.journal.String()))
}

// TestRolloutMends checks when a rollout that a pod has stopped continues.
func TestRolloutMends(t *testing.T) {
	running := func(since time.Duration) func(r *rolled) {
		return func(r *rolled) {
			r.workloads = func() []*rollout.Workload { return []*rollout.Workload{half("web")} }
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent:2"}}}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", Image: "agent:2", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.clock.Add(-since))}}}}
			r.pods["web-1"] = pod
		}
	}
	for what, test := range map[string]struct {
		change func(r *rolled)
		want   bool
	}{
		"it still fails":  {func(r *rolled) { r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} } }, false},
		"the pod is gone": {func(*rolled) {}, true},
		"another pod is behind": {func(r *rolled) {
			r.workloads = func() []*rollout.Workload { w := web("web"); w.Behind[0].Name = "web-2"; return []*rollout.Workload{w} }
		}, true},
		"it runs for a moment":   {running(time.Second), false},
		"it has run for a while": {running(time.Hour), true},
		"its namespace is left": {func(r *rolled) {
			r.namespaces = []string{"other"}
			r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
		}, true},
		"no pod is known, and the workload is behind": {func(r *rolled) {
			unstructured.RemoveNestedField(r.objects[r.of].Object, "status", "failed", "pod")
			r.workloads = func() []*rollout.Workload { return []*rollout.Workload{half("web")} }
		}, false},
		"no pod is known, and the workload is current": {func(r *rolled) {
			unstructured.RemoveNestedField(r.objects[r.of].Object, "status", "failed", "pod")
		}, true},
		"the template has changed": {func(r *rolled) { r.rollout(map[string]any{"strategy": "InPlace"}) }, true},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRolled()
			r.runErr = errors.New("it crashes")
			r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
			r.reconcile(t)
			r.runErr, r.workloads = nil, func() []*rollout.Workload { return nil }
			r.clock = r.clock.Add(time.Hour)
			test.change(r)
			r.journal.Reset()
			r.reconcile(t)
			if continues := strings.Contains(r.journal.String(), "type: Degraded") && !strings.Contains(r.journal.String(), "reason: Failed"); continues != test.want {
				t.Errorf("it continues: %t, want %t:\n%s", continues, test.want, r.journal.String())
			}
		})
	}
}

// TestRolloutStops checks that a rollout stops when its template or the namespaces change.
func TestRolloutStops(t *testing.T) {
	for what, change := range map[string]func(r *rolled){
		"the template changes": func(r *rolled) { r.objects[r.of].SetGeneration(9) },
		"it is deleted":        func(r *rolled) { delete(r.objects, r.of) },
		"the label is removed": func(r *rolled) { r.namespaces, r.clock = nil, r.clock.Add(recheckEvery) },
		"a canary is created":  func(r *rolled) { r.canary() },
	} {
		t.Run(what, func(t *testing.T) {
			r := newRolled()
			r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
			r.during = func() { change(r) }
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: r.of}); err != nil {
				t.Fatal(err)
			}
			r.clock = r.clock.Add(settleTime)
			if result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: r.of}); err != nil || result.RequeueAfter != time.Millisecond {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

// TestRolloutFollows checks when the controller plans again.
func TestRolloutFollows(t *testing.T) {
	r := newRolled()
	r.reconcile(t)
	for _, step := range []struct {
		what   string
		change func()
		plans  int
	}{
		{"nothing", func() {}, 0},
		{"pods are outdated, soon after a plan", func() { r.counts.Outdated = 3 }, 0},
		{"a while later", func() { r.clock = r.clock.Add(2 * retryAfter) }, 1},
		{"another namespace", func() { r.namespaces = []string{"shop", "till"}; r.clock = r.clock.Add(recheckEvery) }, 1},
		{"other settings", func() { r.rollout(map[string]any{"strategy": "InPlace"}) }, 1},
		{"a canary", r.canary, 1},
		{"nothing happens to it", func() {}, 0},
		{"it is deleted", func() { delete(r.objects, types.NamespacedName{Name: "next"}) }, 1},
		{"the template is deleted and created again", func() { r.objects[r.of].SetUID("3") }, 1},
		{"much later", func() { r.clock = r.clock.Add(replanEvery) }, 1},
	} {
		before := r.plans
		step.change()
		if r.reconcile(t); r.plans-before != step.plans {
			t.Errorf("%s: %d plans, want %d", step.what, r.plans-before, step.plans)
		}
	}
}
