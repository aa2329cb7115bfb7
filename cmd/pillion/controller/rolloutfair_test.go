// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestRolloutWaitsAlone checks that templates whose rollouts wait delay no other template, also if they are many.
func TestRolloutWaitsAlone(t *testing.T) {
	r := newRolled()
	const waiting = 100
	names := []types.NamespacedName{r.of}
	for i := range waiting {
		o := r.objects[r.of].DeepCopy()
		name := types.NamespacedName{Name: "waits-" + string(rune('a'+i/26)) + string(rune('a'+i%26))}
		o.SetName(name.Name)
		o.SetUID(types.UID(name.Name))
		r.objects[name] = o
		names = append([]types.NamespacedName{name}, names...)
	}
	r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waits, done := make(chan struct{}, waiting), make(chan struct{})
	r.run = func(ctx context.Context, u *executor.Rollout, _ []*rollout.Workload) error {
		if u.Template == r.of.Name {
			close(done)
		} else {
			waits <- struct{}{}
		}
		<-ctx.Done()
		return ctx.Err()
	}
	r.clock = r.clock.Add(time.Minute)
	r.notePlans(names)
	c, err := controller.NewUnmanaged("rollouts", r.controllerOptions(logr.Discard()))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for _, name := range names[:waiting] {
				queue.Add(reconcile.Request{NamespacedName: name})
			}
			for range waiting {
				select {
				case <-waits:
				case <-ctx.Done():
				}
			}
			queue.Add(reconcile.Request{NamespacedName: r.of}) // while all others wait
		}()
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	select {
	case <-done:
	case <-ctx.Done():
		t.Errorf("the rollout does not begin while others wait")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// notePlans notes that the templates have been known for long enough.
func (r *rolled) notePlans(names []types.NamespacedName) {
	for _, name := range names {
		t := r.getSubject(name)
		t.origin = r.originOf(t)
		r.notePlan(name, planned{from: planOrigin(t.origin, r.namespaces), known: r.clock.Add(-time.Minute)})
	}
}
