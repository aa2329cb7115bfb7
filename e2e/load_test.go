// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// loadWorkers are more than the connections that the API server keeps to two endpoints.
	loadWorkers = 120
	// realEvery: one create of so many is stored. The others are dry runs, which go through the same
	// admission and cost no disk.
	realEvery = 25
	// createsPerSecond is the rate of the quick size. Without a limit, the load takes all CPUs from the other tests.
	createsPerSecond = 50
)

// rotationSize is how many creates a rotation must survive, and how often the API server must verify a certificate
// meanwhile.
func rotationSize() (creates, connections int64) {
	if fullSize() {
		return 2000, 100
	}
	return 300, 10
}

var errNotInjected = errors.New("the pod is not injected")

// load creates pods continuously and checks each.
type load struct {
	client    kubernetes.Interface
	namespace string
	limiter   flowcontrol.RateLimiter

	created  atomic.Int64
	finished sync.WaitGroup
	cancel   context.CancelFunc

	mu       sync.Mutex
	failures []failure
}

// failure is a create that failed, or whose pod is not injected.
type failure struct {
	began, ended time.Time
	err          error
}

func (i *installed) startLoad(t *testing.T) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{client: i.Client, namespace: i.namespace, cancel: cancel, limiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	if !fullSize() {
		l.limiter = flowcontrol.NewTokenBucketRateLimiter(createsPerSecond, loadWorkers)
	}
	for range loadWorkers {
		l.finished.Go(func() { l.work(ctx) })
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) work(ctx context.Context) {
	for ctx.Err() == nil && l.limiter.Wait(ctx) == nil {
		began := time.Now()
		if err := l.create(ctx, l.created.Add(1)); err != nil {
			l.mu.Lock()
			l.failures = append(l.failures, failure{began, time.Now(), err})
			l.mu.Unlock()
		}
	}
}

// create is not cut off by the end of the load.
func (l *load) create(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitLimit)
	defer cancel()
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if n%realEvery == 0 {
		options.DryRun = nil
	}
	pod := shopPod()
	pod.GenerateName = "load-"
	pod, err := l.client.CoreV1().Pods(l.namespace).Create(ctx, pod, options)
	if err != nil {
		return err
	}
	if !isInjected(pod) {
		return errNotInjected
	}
	return nil
}

// stop waits for the last creates.
func (l *load) stop() {
	l.cancel()
	l.finished.Wait()
}

// more waits until so many more pods have been created.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	target := l.created.Load() + n
	eventually(t, "pods are created", func(context.Context) error {
		if now := l.created.Load(); now < target {
			return fmt.Errorf("%d of %d", now, target)
		}
		return nil
	})
}
