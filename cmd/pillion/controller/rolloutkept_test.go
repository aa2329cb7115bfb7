// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

var errRight = apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New(`user "x" cannot patch resource "pods" in API group "" in the namespace "shop"`))

// reconcileFor calls Reconcile as controller-runtime does, for a time. It returns what Reconcile returned last.
func (r *rolled) reconcileFor(t *testing.T, d time.Duration) (last error) {
	t.Helper()
	for end := r.clock.Add(d); r.clock.Before(end); {
		var result reconcile.Result
		result, last = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: r.of})
		r.clock = r.clock.Add(min(max(result.RequeueAfter, settleTime/5), recheckEvery))
	}
	return last
}

// readStored returns the status that the API server has.
func (r *rolled) readStored(t *testing.T) (s v1alpha1.Status) {
	t.Helper()
	fields, _, _ := unstructured.NestedMap(r.objects[r.of].Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// readReason returns the reason of a condition that the API server has.
func (r *rolled) readReason(t *testing.T, condition string) string {
	t.Helper()
	s := r.readStored(t)
	if c := meta.FindStatusCondition(s.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// failWrites makes the first writes of a status fail that contain a string.
func (u *undone) failWrites(text string, times int) {
	apply := u.rollouts.apply
	u.rollouts.apply = func(ctx context.Context, status *unstructured.Unstructured) error {
		if strings.Contains(fmt.Sprint(status.Object), text) && times > 0 {
			times--
			return errors.New("connection refused")
		}
		return apply(ctx, status)
	}
}

// TestFailureIsKept checks that the failure of a rollout is known until the content of the template changes, and that the rollout is
// undone once, whatever happens to requests, to the watch and to the status meanwhile. In the namespace shop, a content fails that would
// not fail a second time.
func TestFailureIsKept(t *testing.T) {
	for what, disturb := range map[string]func(*undone){
		"nothing happens": func(*undone) {},
		"a right is missing for a moment, while the rollout is undone": func(u *undone) {
			u.fails["shop"] = errRight
			run := u.run
			u.run = func(ctx context.Context, e *executor.Rollout, all []*rollout.Workload) error {
				err := run(ctx, e, all)
				if e.Limits.Undo {
					delete(u.fails, "shop")
				}
				return err
			}
		},
		"the failure cannot be written once":       func(u *undone) { u.failWrites("failed:", 1) },
		"the failure cannot be written four times": func(u *undone) { u.failWrites("failed:", 4) },
		"the watch is late by seven seconds": func(u *undone) {
			late := &lateWatch{reader: u.read, now: u.now}
			apply := u.rollouts.apply
			u.rollouts.apply = func(ctx context.Context, status *unstructured.Unstructured) error {
				if strings.Contains(fmt.Sprint(status.Object), "failed:") && late.old == nil {
					late.old, late.until = u.objects[u.of].DeepCopy(), u.clock.Add(7*time.Second)
				}
				return apply(ctx, status)
			}
			u.read = late
		},
		"a user changes only spec.rollout before the pod fails": func(u *undone) {
			run, done := u.run, false
			u.run = func(ctx context.Context, e *executor.Rollout, all []*rollout.Workload) error {
				if !done {
					done = true
					u.Lock()
					u.rollout(map[string]any{"strategy": "InPlace", "onFailure": "Undo", "bake": "10m"})
					u.Unlock()
				}
				return run(ctx, e, all)
			}
		},
		"another client removes the failure from the status": func(u *undone) {
			apply, done := u.rollouts.apply, false
			u.rollouts.apply = func(ctx context.Context, status *unstructured.Unstructured) error {
				err := apply(ctx, status)
				if strings.Contains(fmt.Sprint(status.Object), "done:true") && !done {
					done = true
					unstructured.RemoveNestedField(u.objects[u.of].Object, "status", "failed")
				}
				return err
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			u, begun := newUndone(t, map[string]any{}), 0
			disturb(u)
			run := u.run
			u.run = func(ctx context.Context, e *executor.Rollout, all []*rollout.Workload) error {
				if !e.Limits.Undo && all[0].Namespace == "shop" {
					if begun++; begun > 1 { // the failed pod is ready again, so the rollout goes on
						u.settled = true
						return nil
					}
				}
				return run(ctx, e, all)
			}
			if err := u.reconcileFor(t, 10*time.Minute); err != nil {
				t.Error(err)
			}
			f := u.readStored(t).Failed
			if begun != 1 || len(f) != 1 || f[0].Undo == nil || !f[0].Undo.Done || f[0].Undo.Pods != 2 || u.changed["shop"] != 0 {
				t.Errorf("%d rollouts began in the namespace; in the end, the API server has %+v, and %d pods are not put back:\n%s", begun, f, u.changed["shop"], u.journal.String())
			}
			if p, d := u.readReason(t, v1alpha1.ConditionProgressing), u.readReason(t, v1alpha1.ConditionDegraded); p != v1alpha1.ReasonStopped || d != v1alpha1.ReasonUndone {
				t.Errorf("the reasons are %s and %s", p, d)
			}
		})
	}
}

// TestFailureElsewhere checks that a namespace in which a pod has failed stays unchanged if a right is missing in another one.
func TestFailureElsewhere(t *testing.T) {
	u, begun := newUndone(t, map[string]any{}), 0
	u.rollout(map[string]any{"strategy": "InPlace"})
	run := u.run
	u.run = func(ctx context.Context, e *executor.Rollout, all []*rollout.Workload) error {
		if all[0].Namespace == "shop" {
			begun++
			return run(ctx, e, all)
		}
		e.Report(executor.Event{Type: "failed", Namespace: "till", Workload: "Deployment/web", Pod: "web-1", Message: errRight.Error(), Err: errRight})
		return &executor.FailedError{Cause: errRight}
	}
	if err := u.reconcileFor(t, 10*time.Minute); err != nil {
		t.Error(err)
	}
	if f := u.readStored(t).Failed; begun != 1 || len(f) != 1 || f[0].Namespace != "shop" {
		t.Errorf("%d rollouts began in the namespace; in the end, the API server has %+v:\n%s", begun, f, u.journal.String())
	}
}

// TestRolloutReasons checks that the conditions say what is true at last, after something went wrong for a moment.
func TestRolloutReasons(t *testing.T) {
	stops := map[string]any{"strategy": "InPlace", "scope": "All"}
	undoes := map[string]any{"strategy": "InPlace", "scope": "All", "onFailure": "Undo"}
	noList := func(t *testing.T, u *undone) {
		u.listErr = errors.New("etcd: leader changed")
		if _ = u.reconcileFor(t, time.Minute); u.readReason(t, v1alpha1.ConditionProgressing) != v1alpha1.ReasonCannotPlan {
			t.Error("the conditions do not say that there is no plan")
		}
		u.listErr = nil
	}
	for what, c := range map[string]struct {
		settings map[string]any
		before   func(*undone)
		after    func(*testing.T, *undone)
		want     string // the reason of the condition Progressing
	}{
		"stopped, and the namespaces cannot be listed": {stops, nil, noList, v1alpha1.ReasonStopped},
		"undone, and the namespaces cannot be listed":  {undoes, nil, noList, v1alpha1.ReasonStopped},
		"complete, and the namespaces cannot be listed": {
			map[string]any{"strategy": "InPlace"}, func(u *undone) { u.namespaces = []string{"till"} }, noList, v1alpha1.ReasonComplete,
		},
		"that it has stopped cannot be written": {stops, func(u *undone) { u.failWrites("reason:Stopped", 3) }, nil, v1alpha1.ReasonStopped},
		"that it was undone cannot be written":  {undoes, func(u *undone) { u.failWrites("reason:Stopped", 3) }, nil, v1alpha1.ReasonStopped},
		"the label of all namespaces was removed": {
			stops, nil, func(t *testing.T, u *undone) { u.namespaces = nil }, v1alpha1.ReasonComplete,
		},
	} {
		t.Run(what, func(t *testing.T) {
			u := newUndone(t, map[string]any{})
			u.rollout(c.settings)
			if c.before != nil {
				c.before(u)
			}
			_ = u.reconcileFor(t, 5*time.Minute)
			if c.after != nil {
				c.after(t, u)
			}
			if err := u.reconcileFor(t, 5*time.Minute); err != nil {
				t.Error(err)
			}
			if got := u.readReason(t, v1alpha1.ConditionProgressing); got != c.want {
				t.Errorf("the reason is %s, want %s:\n%s", got, c.want, u.journal.String())
			}
		})
	}
}

// TestRolloutOtherContentForLong checks that the conditions say so if the API server has another content than the watch for long, and
// that plans become rare.
func TestRolloutOtherContentForLong(t *testing.T) {
	u, plans, other := newUndone(t, map[string]any{}), 0, true
	plan := u.plan
	u.plan = func(ctx context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error) {
		if plans++; other {
			return nil, cluster.ErrOtherContent
		}
		return plan(ctx, namespaces, b)
	}
	if _ = u.reconcileFor(t, otherFor/2); u.readReason(t, v1alpha1.ConditionProgressing) != "" || plans < 10 {
		t.Errorf("after %d plans: %+v", plans, u.readStored(t))
	}
	if _ = u.reconcileFor(t, otherFor); u.readReason(t, v1alpha1.ConditionProgressing) != v1alpha1.ReasonCannotPlan {
		t.Errorf("%+v", u.readStored(t))
	}
	plans = 0
	if _ = u.reconcileFor(t, 5*time.Minute); plans > 6 {
		t.Errorf("%d plans in five minutes", plans)
	}
	other = false
	if _ = u.reconcileFor(t, 5*time.Minute); u.readReason(t, v1alpha1.ConditionDegraded) != v1alpha1.ReasonUndone {
		t.Errorf("%+v", u.readStored(t))
	}
}

// TestFailureIsForgotten checks that another content is rolled out after a failure, whatever happens to requests meanwhile.
func TestFailureIsForgotten(t *testing.T) {
	for what, c := range map[string]struct{ before, fixed func(*testing.T, *undone) }{
		"nothing happens": {},
		"the namespaces cannot be listed when the content changes": {fixed: func(t *testing.T, u *undone) {
			u.listErr = errors.New("etcd: leader changed")
			_ = u.reconcileFor(t, 10*time.Second)
			u.listErr = nil
		}},
		"the pods could not be put back before": {
			func(_ *testing.T, u *undone) { u.fails["shop"] = errors.New("it is not done after 5m0s") },
			func(t *testing.T, u *undone) {
				u.listErr = errors.New("etcd: leader changed")
				_ = u.reconcileFor(t, 10*time.Second)
				u.listErr = nil
			},
		},
		"the API server never accepts the failure": {before: func(_ *testing.T, u *undone) { u.failWrites("failed:", 1<<30) }},
	} {
		for _, onFailure := range []string{"Stop", "Undo"} {
			t.Run(what+", "+onFailure, func(t *testing.T) {
				u := newUndone(t, map[string]any{})
				u.rollout(map[string]any{"strategy": "InPlace", "onFailure": onFailure})
				if c.before != nil {
					c.before(t, u)
				}
				_ = u.reconcileFor(t, 3*time.Minute)
				u.put("", "two")
				u.rollout(map[string]any{"strategy": "InPlace", "onFailure": onFailure})
				u.settled, u.journal = false, strings.Builder{}
				if c.fixed != nil {
					c.fixed(t, u)
				}
				u.run = func(_ context.Context, e *executor.Rollout, all []*rollout.Workload) error {
					fmt.Fprintf(&u.journal, "run: undo %t\n", e.Limits.Undo)
					u.settled = true
					return nil
				}
				if err := u.reconcileFor(t, 20*time.Minute); err != nil {
					t.Error(err)
				}
				journal := u.journal.String()
				if p, d := u.readReason(t, v1alpha1.ConditionProgressing), u.readReason(t, v1alpha1.ConditionDegraded); p != v1alpha1.ReasonComplete || d != v1alpha1.ReasonAsExpected {
					t.Errorf("the reasons are %s and %s:\n%s", p, d, journal)
				}
				if strings.Contains(journal, "run: undo true") || !strings.Contains(journal, "plan: [shop till]") {
					t.Errorf("the new content was not rolled out, or undone:\n%s", journal)
				}
			})
		}
	}
}

// TestFailureAfterSettings checks that a namespace is tried again after a change of spec.rollout, although a pod fails after the change
// in another one.
func TestFailureAfterSettings(t *testing.T) {
	u := newUndone(t, map[string]any{})
	u.rollout(map[string]any{"strategy": "InPlace"})
	begun := map[string]int{}
	fail := func(e *executor.Rollout, namespace string) {
		err := errors.New("it crashes in " + namespace)
		e.Report(executor.Event{Type: "failed", Namespace: namespace, Workload: "Deployment/web", Pod: "web-1", Message: err.Error(), Err: err})
	}
	u.run = func(_ context.Context, e *executor.Rollout, all []*rollout.Workload) error {
		for _, w := range all {
			begun[w.Namespace]++
		}
		if begun["shop"] == 1 && begun["till"] == 1 {
			fail(e, "shop")
			u.Lock()
			u.rollout(map[string]any{"strategy": "InPlace", "bake": "10m"})
			u.Unlock()
			fail(e, "till")
			return &executor.FailedError{Cause: errors.New("it crashes")}
		}
		u.settled = true
		if f := u.readStored(t).Failed; len(f) != 1 || f[0].Namespace != "till" {
			t.Errorf("when the namespace is tried again, the API server has %+v", f)
		}
		return nil
	}
	if err := u.reconcileFor(t, 10*time.Minute); err != nil {
		t.Error(err)
	}
	if begun["shop"] != 2 || begun["till"] != 1 {
		t.Errorf("rollouts began: %v", begun)
	}
}

// TestReportOfPaused checks that the conditions of a paused rollout are written again if another client changes them at once.
func TestReportOfPaused(t *testing.T) {
	r := newRolled()
	r.rollout(map[string]any{"strategy": "InPlace", "paused": true})
	if err := r.reconcileFor(t, time.Second); err != nil {
		t.Error(err)
	}
	conditions, _, _ := unstructured.NestedSlice(r.objects[r.of].Object, "status", "conditions")
	_ = unstructured.SetNestedSlice(r.objects[r.of].Object, conditions[:1], "status", "conditions")
	var waited time.Duration
	for waited < 2*staleFor {
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: r.of})
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter == 0 {
			break
		}
		waited += result.RequeueAfter
		r.clock = r.clock.Add(result.RequeueAfter + time.Millisecond)
	}
	if got := r.readReason(t, v1alpha1.ConditionPaused); got != v1alpha1.ReasonPaused {
		t.Errorf("after %v, the reason is %q", waited, got)
	}
}

// TestRolloutNotUsed checks that a rollout stops if Pillion does not use the template any more, although its content is the same, and
// that the conditions say so.
func TestRolloutNotUsed(t *testing.T) {
	r := newRolled()
	r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
	r.run = func(_ context.Context, e *executor.Rollout, _ []*rollout.Workload) error {
		e.Report(executor.Event{Type: "wave", Message: "wave 1 of 3", Total: 3})
		r.Lock()
		conditions, _, _ := unstructured.NestedSlice(r.objects[r.of].Object, "status", "conditions")
		conditions[0].(map[string]any)["status"] = "False"
		_ = unstructured.SetNestedSlice(r.objects[r.of].Object, conditions, "status", "conditions")
		r.Unlock()
		<-e.Stop
		return executor.ErrStopped
	}
	if err := r.reconcileFor(t, time.Minute); err != nil {
		t.Error(err)
	}
	s := r.readStored(t)
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionProgressing)
	if c == nil || c.Status != "False" || c.Reason != v1alpha1.ReasonCannotPlan || !strings.Contains(c.Message, "does not use the template") {
		t.Errorf("%+v", c)
	}
}

// TestRolloutPausedMeanwhile checks that no pod changes if the rollout is paused while it waits for its plan.
func TestRolloutPausedMeanwhile(t *testing.T) {
	r := newRolled()
	plan := r.plan
	r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
	r.plan = func(ctx context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error) {
		targets, err := plan(ctx, namespaces, b)
		r.rollout(map[string]any{"strategy": "InPlace", "paused": true})
		return targets, err
	}
	r.run = func(context.Context, *executor.Rollout, []*rollout.Workload) error {
		t.Error("pods change")
		return nil
	}
	if err := r.reconcileFor(t, time.Minute); err != nil {
		t.Error(err)
	}
	if got := r.readReason(t, v1alpha1.ConditionProgressing); got != v1alpha1.ReasonPaused || r.plans == 0 {
		t.Errorf("after %d plans, the reason is %s", r.plans, got)
	}
}
