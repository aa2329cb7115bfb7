// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// undone is an API with a template whose failure undoes the rollout. In the namespaces of changed, pods have the change.
type undone struct {
	*rolled

	changed map[string]int                      // pods to put back, by namespace
	extra   func(namespace string) *rollout.Pod // a pod that cannot go back, or nil
	fails   map[string]error                    // of the undo, by namespace
	settled bool                                // the rollout changes no more pods
	deploys bool                                // a user deploys a new version of another workload of the namespace shop
	ended   error                               // of the context of the rollout that has failed
}

func newUndone(t *testing.T, settings map[string]any) *undone {
	t.Helper()
	u := &undone{rolled: newRolled(), changed: map[string]int{"shop": 2}, fails: map[string]error{}, extra: func(string) *rollout.Pod { return nil }}
	u.namespaces = []string{"shop", "till"}
	settings["strategy"], settings["onFailure"] = "InPlace", "Undo"
	u.rollout(settings)
	u.setRevision(t, "0123456789ab")
	u.plan = func(_ context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error) {
		u.plans++
		fmt.Fprintf(&u.journal, "plan: %s %+v\n", namespaces, b)
		targets := &cluster.Targets{}
		for _, namespace := range namespaces {
			w := web("web")
			w.Namespace, w.Behind = namespace, nil
			n := u.changed[namespace]
			if !b.Undo {
				if n = 1; u.settled {
					n = 0
				}
			}
			for i := range n {
				p := web("web").Behind[0]
				p.Namespace, p.Name = namespace, fmt.Sprint("web-", i+1)
				w.Behind = append(w.Behind, p)
			}
			if p := u.extra(namespace); p != nil && b.Undo {
				w.Behind = append(w.Behind, p)
			}
			if u.deploys && namespace == "shop" && b.Undo {
				targets.Workloads = append(targets.Workloads, &rollout.Workload{Namespace: namespace, Kind: "Deployment", Name: "zoo", Way: rollout.Await})
			}
			if len(w.Behind) > 0 {
				w.Choose(rollout.Owner{InPlace: true})
				targets.Workloads = append(targets.Workloads, w)
			}
		}
		return targets, nil
	}
	u.run, u.rollouts.apply = u.playRollout, func(ctx context.Context, status *unstructured.Unstructured) error {
		u.Lock()
		defer u.Unlock()
		err := u.applyRollout(ctx, status)
		u.setRevision(t, "0123456789ab") // another manager owns it
		return err
	}
	return u
}

func (u *undone) setRevision(t *testing.T, revision string) {
	t.Helper()
	if err := unstructured.SetNestedField(u.objects[u.of].Object, revision, "status", "revision"); err != nil {
		t.Fatal(err)
	}
}

// playRollout plays the executor. A rollout fails in the namespace shop, and an undo puts all pods back.
func (u *undone) playRollout(ctx context.Context, e *executor.Rollout, all []*rollout.Workload) error {
	fmt.Fprintf(&u.journal, "run: undo %t, first %d, shares %d\n", e.Limits.Undo, e.Limits.First, e.Limits.Shares)
	e.Report(executor.Event{Type: "wave", Message: "wave 1 of 1", Total: len(all)})
	var failures []error
	for _, w := range all {
		switch err := u.fails[w.Namespace]; {
		case !e.Limits.Undo && w.Namespace == "shop":
			err := errors.New("pod web-1 in the namespace shop: it was ready with the change for 20s, and is not any more")
			e.Report(executor.Event{Type: "failed", Namespace: "shop", Workload: w.Title(), Pod: "web-1", Message: err.Error(), Err: err})
			u.ended = ctx.Err()
			return &executor.FailedError{Cause: err}
		case !e.Limits.Undo:
		case err != nil:
			e.Report(executor.Event{Type: "failed", Namespace: w.Namespace, Workload: w.Title(), Pod: "web-1", Message: err.Error(), Err: err})
			failures = append(failures, err)
		default:
			for _, p := range w.Todo() {
				e.Report(executor.Event{Type: "pod", Namespace: w.Namespace, Workload: w.Title(), Pod: p.Name, Done: 1, Total: len(all)})
			}
			u.changed[w.Namespace] = 0
		}
	}
	if !e.Limits.Undo {
		u.settled = true
	}
	return errors.Join(failures...)
}

// failed returns what status.failed says.
func (u *undone) failed(t *testing.T) []v1alpha1.FailedRollout {
	t.Helper()
	return u.getSubject(u.of).status.Failed
}

// TestRolloutUndo checks what the controller does and reports in the life of a rollout that it undoes, in
// testdata/rolloutundo.txt.
func TestRolloutUndo(t *testing.T) {
	u := newUndone(t, map[string]any{})
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"a pod fails in one of two namespaces", func() {}},
		{"nothing has changed", func() {}},
		{"much later, when the pod is gone", func() { u.clock = u.clock.Add(time.Hour) }},
		{"the template changes, and a pod fails that was created with the content", func() {
			u.rollout(map[string]any{"strategy": "InPlace", "onFailure": "Undo"})
			u.changed["shop"], u.settled = 1, false
			u.extra = func(namespace string) *rollout.Pod {
				if namespace != "shop" {
					return nil
				}
				return &rollout.Pod{Namespace: namespace, Name: "web-9", Action: rollout.Leave, Why: "it was created with the content that has failed"}
			}
		}},
		{"it stops only", func() {
			u.rollout(map[string]any{"strategy": "InPlace", "onFailure": "Stop"})
			u.changed["shop"], u.settled = 1, false
		}},
	} {
		step.do()
		fmt.Fprintf(&u.journal, "# %s\n", step.what)
		u.reconcile(t)
	}
	golden.File(t, "testdata/rolloutundo.txt", []byte(u.journal.String()))
}

// TestRolloutUndoAtOnce checks that a failure ends a rollout at once if it is undone, and that pods which are half done are
// completed otherwise.
func TestRolloutUndoAtOnce(t *testing.T) {
	for onFailure, want := range map[string]bool{"Undo": true, "Stop": false} {
		u := newUndone(t, map[string]any{})
		u.rollout(map[string]any{"strategy": "InPlace", "onFailure": onFailure})
		u.reconcile(t)
		if got := u.ended != nil; got != want {
			t.Errorf("%s: the rollout has ended at once: %t, want %t", onFailure, got, want)
		}
	}
}

// TestRolloutUndoRetries checks that an undo which fails is tried again, that the rollout goes on in other namespaces meanwhile,
// and that another replica continues it.
func TestRolloutUndoRetries(t *testing.T) {
	u := newUndone(t, map[string]any{})
	u.fails["shop"] = errors.New("pod web-1 in the namespace shop: it is not done after 5m0s: it waits for the pod to become Ready")
	u.reconcile(t)
	f := u.failed(t)
	if len(f) != 1 || f[0].Undo == nil || f[0].Undo.Done || !strings.Contains(f[0].Undo.Message, "it is not done after 5m0s") {
		t.Fatalf("%+v", f)
	}
	if tries := strings.Count(u.journal.String(), "run: undo true"); tries != 1 || !u.settled {
		t.Errorf("%d tries within seconds; the rollout went on in the other namespace: %t:\n%s", tries, u.settled, u.journal.String())
	}
	u.clock = u.clock.Add(retryAfter)
	u.planned = map[types.NamespacedName]planned{} // another replica knows nothing
	delete(u.fails, "shop")
	u.reconcile(t)
	if f := u.failed(t); len(f) != 1 || f[0].Undo == nil || !f[0].Undo.Done || f[0].Undo.Pods != 2 || f[0].Undo.Message != "" {
		t.Errorf("%+v", f)
	}
}

// TestRolloutUndoWaits checks that an undo waits for workloads that replace their pods, and is done in other namespaces meanwhile.
func TestRolloutUndoWaits(t *testing.T) {
	u := newUndone(t, map[string]any{})
	u.deploys = true
	u.reconcile(t)
	f := u.failed(t)
	if len(f) != 1 || f[0].Undo == nil || f[0].Undo.Done || f[0].Undo.Pods != 2 || f[0].Undo.Message != "waiting for workloads that replace their pods, for example Deployment/zoo in the namespace shop" {
		t.Fatalf("%+v", f[0].Undo)
	}
	if !u.settled {
		t.Error("the rollout does not go on in the other namespace")
	}
	u.clock, u.deploys = u.clock.Add(retryAfter), false
	u.reconcile(t)
	if f := u.failed(t); len(f) != 1 || !f[0].Undo.Done || f[0].Undo.Pods != 2 || f[0].Undo.Message != "" {
		t.Errorf("%+v", f[0].Undo)
	}
}

// TestRolloutUndoScope checks that with the scope All, pods of all namespaces go back.
func TestRolloutUndoScope(t *testing.T) {
	for scope, want := range map[string][]int{"All": {0, 0, 5}, "Namespace": {0, 3, 2}} {
		u := newUndone(t, map[string]any{"scope": scope})
		u.changed["till"] = 3
		u.reconcile(t)
		f := u.failed(t)
		if len(f) != 1 || f[0].Undo == nil || !f[0].Undo.Done {
			t.Fatalf("%s: %+v", scope, f)
		}
		if got := []int{u.changed["shop"], u.changed["till"], int(f[0].Undo.Pods)}; !slices.Equal(got, want) {
			t.Errorf("%s: %d, want %d", scope, got, want)
		}
	}
}

// TestRolloutOtherContent checks that a rollout, and its undo, wait for the content of the template that the API server has. Otherwise,
// pods would get a newer content while what happens to them is reported about an older one, and a failure would be forgotten with it.
func TestRolloutOtherContent(t *testing.T) {
	for _, undo := range []bool{false, true} {
		u := newUndone(t, map[string]any{})
		plan, others := u.plan, 3
		u.plan = func(ctx context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error) {
			if b.Revision != "0123456789ab" {
				t.Errorf("a plan for the revision %q", b.Revision)
			}
			if b.Undo != undo || others == 0 {
				return plan(ctx, namespaces, b)
			}
			others--
			fmt.Fprintln(&u.journal, "other content")
			return nil, cluster.ErrOtherContent
		}
		u.reconcile(t)
		_, waits, _ := strings.Cut(u.journal.String(), "other content\n")
		if waits, _, _ = strings.Cut(waits, "plan: "); others != 0 || waits != "other content\nother content\n" {
			t.Errorf("undo %t: it does not only wait (%d times left):\n%s", undo, others, u.journal.String())
		}
		if f := u.failed(t); len(f) != 1 || f[0].Undo == nil || !f[0].Undo.Done || f[0].Undo.Pods != 2 {
			t.Errorf("undo %t: %+v", undo, f)
		}
	}
}

// TestRolloutUndoStale checks that nothing is done twice if what the controller reads is older than what it has written, for a
// moment.
func TestRolloutUndoStale(t *testing.T) {
	u := newUndone(t, map[string]any{})
	read := &lateWatch{reader: u.read, now: u.now}
	apply := u.rollouts.apply
	u.rollouts.apply = func(ctx context.Context, status *unstructured.Unstructured) error {
		read.old, read.until = u.objects[u.of].DeepCopy(), u.clock.Add(settleTime*3/5)
		return apply(ctx, status)
	}
	u.read = read
	for range 40 {
		u.clock = u.clock.Add(settleTime / 5)
		if _, err := u.Reconcile(t.Context(), reconcile.Request{NamespacedName: u.of}); err != nil {
			t.Fatal(err)
		}
	}
	f := u.failed(t)
	if len(f) != 1 || f[0].Undo == nil || !f[0].Undo.Done || f[0].Undo.Pods != 2 {
		t.Errorf("%+v", f)
	}
	for what, want := range map[string]int{"event: Warning RolloutStopped": 1, "event: Normal RolloutUndone": 1, "run: undo true": 1} {
		if got := strings.Count(u.journal.String(), what); got != want {
			t.Errorf("%q: %d times, want %d:\n%s", what, got, want, u.journal.String())
		}
	}
}

// lateWatch returns an older template for a time.
type lateWatch struct {
	reader

	now   func() time.Time
	old   *unstructured.Unstructured
	until time.Time
}

func (l *lateWatch) Get(name types.NamespacedName) (*kube.Entry, bool) {
	if l.old == nil || l.now().After(l.until) {
		return l.reader.Get(name)
	}
	a := &api{objects: map[types.NamespacedName]*unstructured.Unstructured{name: l.old}}
	return a.Get(name)
}
