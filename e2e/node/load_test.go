// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	// createEvery makes two pods a second.
	createEvery = 500 * time.Millisecond
	// retryAfter is how long a controller may wait before it creates a pod again, and retryAtMost what that
	// grows to.
	retryAfter  = 200 * time.Millisecond
	retryAtMost = 3 * time.Second
	loadLabel   = "e2e.example.com/load"
)

// load creates two pods a second, each of which costs the node nothing because no scheduler is
// responsible for it. As controllers do, it creates a pod again that was denied. With every pod, it
// creates one in kube-system and one in a namespace that did not opt in, which nothing may block.
type load struct {
	ns, plain string
	run       string // part of the pods' names

	stopping, stopped context.CancelFunc
	loop              sync.WaitGroup

	// mayMiss reports whether a pod that was created at this time may have no sidecar. A disruption may set it.
	mayMiss func(time.Time) bool

	mu      sync.Mutex
	created int
	denied  []failure
	missed  []missed
	others  int
	blocked []failure
	slowest map[string]time.Duration // by namespace
}

// failure is a create that failed.
type failure struct {
	began, ended time.Time
	err          error
}

// missed is a pod without a sidecar.
type missed struct {
	name string
	when time.Time
}

// startLoad starts a load that ends with the test at the latest.
func startLoad(t *testing.T) *load {
	t.Helper()
	l := &load{ns: optedInNamespace(t), plain: namespace(t, nil), run: "load-" + rand.String(5), slowest: map[string]time.Duration{}, mayMiss: never}
	ticking, stopping := context.WithCancel(t.Context())
	working, stopped := context.WithCancel(t.Context())
	l.stopping, l.stopped = stopping, stopped
	l.loop.Go(func() {
		tick := time.NewTicker(createEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			l.loop.Go(func() { l.insist(working, i) })
			l.loop.Go(func() { l.other(working, metav1.NamespaceSystem, i) })
			l.loop.Go(func() { l.other(working, l.plain, i) })
			select {
			case <-ticking.Done():
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() {
		stopping()
		stopped()
		l.loop.Wait()
		_ = env.Client.CoreV1().Pods(metav1.NamespaceSystem).DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: loadLabel})
	})
	return l
}

func never(time.Time) bool { return false }

func (l *load) pod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", l.run, i), Labels: map[string]string{loadLabel: "true"}},
		Spec: corev1.PodSpec{
			SchedulerName: "nobody",
			Containers:    []corev1.Container{{Name: "app", Image: StandIn}},
		},
	}
}

// insist creates a pod, as often as necessary.
func (l *load) insist(ctx context.Context, i int) {
	for wait := retryAfter; ; wait = min(2*wait, retryAtMost) {
		started := time.Now()
		pod, err := env.Client.CoreV1().Pods(l.ns).Create(ctx, l.pod(i), metav1.CreateOptions{})
		l.mu.Lock()
		l.slowest[l.ns] = max(l.slowest[l.ns], time.Since(started))
		switch {
		case err == nil && len(pod.Spec.InitContainers) == 0:
			l.created++
			l.missed = append(l.missed, missed{pod.Name, time.Now()})
		case err == nil:
			l.created++
		case ctx.Err() == nil:
			l.denied = append(l.denied, failure{started, time.Now(), err})
		}
		l.mu.Unlock()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// other creates a pod that Pillion has nothing to do with.
func (l *load) other(ctx context.Context, ns string, i int) {
	started := time.Now()
	_, err := env.Client.CoreV1().Pods(ns).Create(ctx, l.pod(i), metav1.CreateOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest[ns] = max(l.slowest[ns], time.Since(started))
	l.others++
	if err != nil && ctx.Err() == nil {
		l.blocked = append(l.blocked, failure{started, time.Now(), err})
	}
}

// more waits until n more pods are created.
func (l *load) more(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.created
	}
	want := count() + n
	eventually(t, fmt.Sprintf("%d more pods are created", n), func(context.Context) error {
		if is := count(); is < want {
			return errors.Join(fmt.Errorf("%d of %d", is, want), l.lastError())
		}
		return nil
	})
}

func (l *load) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.denied) == 0 {
		return nil
	}
	return l.denied[len(l.denied)-1].err
}

// disrupt runs a disruption under load, and creates some pods before and after it. disruption returns when
// Pillion has recovered. Creates may be denied only if mayDeny is set, and only if they began before a pod is created again. No pod
// may stay without its sidecar, unless disruption sets mayMiss. In no case may another pod be blocked.
func disrupt(t *testing.T, mayDeny bool, disruption func(t *testing.T, l *load)) {
	const around = 10
	l := startLoad(t)
	l.more(t, around)
	began := time.Now()
	disruption(t, l)
	if mayDeny {
		l.more(t, 1) // a replica is ready a moment before kube-proxy sends connections to it
	}
	recovered := time.Now()
	l.more(t, around)
	l.stopping()
	l.loop.Wait()

	for _, f := range l.denied {
		if !mayDeny || f.ended.Before(began) || f.began.After(recovered.Add(retryAfter)) {
			t.Errorf("denied %s after the disruption began (it took %s): %v", f.began.Sub(began), recovered.Sub(began), f.err)
		}
	}
	for _, m := range l.missed {
		if !l.mayMiss(m.when) {
			t.Errorf("%s has no sidecar:\n%s", m.name, decisionsFor(l.ns, func(e cluster.Event) bool { return e.ObjectRef.Name == m.name }))
		}
	}
	for _, f := range l.blocked {
		t.Errorf("another pod was blocked: %v", f.err)
	}
	l.wantNotCalled(t)
	figure(t, "until Pillion had recovered", recovered.Sub(began))
	if len(l.missed) > 0 {
		figure(t, "pods created, those without a sidecar", fmt.Sprintf("%d, %d", l.created, len(l.missed)))
	} else {
		figure(t, "pods created, all injected", l.created)
	}
	figure(t, "creates that were denied and repeated", l.deniedFor())
	figure(t, "slowest create: opted in, not opted in, kube-system", fmt.Sprintf("%s, %s, %s",
		seconds(l.slowest[l.ns]), seconds(l.slowest[l.plain]), seconds(l.slowest[metav1.NamespaceSystem])))
}

func (l *load) deniedFor() string {
	if len(l.denied) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, in %s", len(l.denied), seconds(l.denied[len(l.denied)-1].ended.Sub(l.denied[0].began)))
}

// wantNotCalled checks in the audit log that no webhook was called for the other pods.
func (l *load) wantNotCalled(t *testing.T) {
	t.Helper()
	found := 0
	_, _, err := env.Audit.Find(func(e cluster.Event) bool {
		if ref := e.ObjectRef; ref != nil && ref.Namespace != l.ns && e.Verb == "create" && strings.HasPrefix(ref.Name, l.run) {
			found++
			if calls := e.Calls(""); len(calls) > 0 {
				t.Errorf("webhooks were called for %s/%s: %v", ref.Namespace, ref.Name, calls)
			}
		}
		return false
	})
	if err != nil || found != l.others {
		t.Errorf("the audit log has %d creates of other pods, want %d (%v)", found, l.others, err)
	}
}
