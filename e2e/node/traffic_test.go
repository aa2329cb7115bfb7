// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// traffic sends requests to apps, each in a connection of its own, and counts those that fail.
type traffic struct {
	stopping context.CancelFunc
	clients  sync.WaitGroup
	started  time.Time

	mu       sync.Mutex
	answered map[string]int // by address
	failures []error
}

// startTraffic starts a client for each address, when all of them answer: kube-proxy may write the rules of a new Service some time
// after its pods are ready, and rejects connections until then.
func startTraffic(t *testing.T, every time.Duration, addresses ...string) *traffic {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, address := range addresses {
		eventually(t, address+" answers", func(ctx context.Context) error { return checkAnswer(ctx, client, address) })
	}
	ctx, stopping := context.WithCancel(t.Context())
	l := &traffic{stopping: stopping, started: time.Now(), answered: map[string]int{}}
	for _, address := range addresses {
		l.clients.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				l.sendRequest(context.WithoutCancel(ctx), client, address)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// checkAnswer returns an error unless an address answers with 200.
func checkAnswer(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err = response.Body.Close(); response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", address, response.Status)
	}
	return err
}

func (l *traffic) sendRequest(ctx context.Context, client *http.Client, address string) {
	sent := time.Since(l.started)
	err := checkAnswer(ctx, client, address)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered[address]++; err != nil {
		l.answered[address]--
		l.failures = append(l.failures, fmt.Errorf("sent after %s: %w", sent, err))
	}
}

// end stops the clients, and waits for them.
func (l *traffic) end() {
	l.stopping()
	l.clients.Wait()
}

// wantNoFailures ends the traffic, and checks that each app has answered all requests. It returns their number.
func (l *traffic) wantNoFailures(t *testing.T) (requests int) {
	t.Helper()
	l.end()
	for address, n := range l.answered {
		if requests += n; n < 2 {
			t.Errorf("%s has answered %d requests", address, n)
		}
	}
	if len(l.failures) > 0 {
		t.Errorf("%d requests failed, the first one with: %v", len(l.failures), l.failures[0])
	}
	return requests
}

// readiness watches the pods of a namespace.
type readiness struct {
	stop    func()
	watches sync.WaitGroup

	mu      sync.Mutex
	seen    map[string]string    // resource versions, by name
	unready map[string]time.Time // since when
	most    int                  // pods that were not ready at the same time
	times   int                  // how often a pod became unready
	longest time.Duration
}

// watchReadiness starts to watch pods, all of which are ready.
func watchReadiness(t *testing.T, ns string) *readiness {
	t.Helper()
	list, err := env.Client.CoreV1().Pods(ns).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := env.Client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	r := &readiness{stop: events.Stop, seen: map[string]string{}, unready: map[string]time.Time{}}
	for i := range list.Items {
		r.see(&list.Items[i])
	}
	r.watches.Go(func() {
		for event := range events.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				r.see(pod)
			}
		}
	})
	t.Cleanup(func() { events.Stop(); r.watches.Wait() })
	return r
}

func (r *readiness) see(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[pod.Name] = pod.ResourceVersion
	since, was := r.unready[pod.Name]
	switch is := !ready(pod); {
	case is && !was:
		r.unready[pod.Name] = time.Now()
		r.times++
		r.most = max(r.most, len(r.unready))
	case !is && was:
		delete(r.unready, pod.Name)
		r.longest = max(r.longest, time.Since(since))
	}
}

// end waits until the watch has seen the present state of all pods, which are ready, and returns how many were
// not at the same time.
func (r *readiness) end(t *testing.T, ns string) (most int) {
	t.Helper()
	return r.endWhen(t, ns, ready)
}

// endWhen is end for pods of which only something else is true.
func (r *readiness) endWhen(t *testing.T, ns string, is func(*corev1.Pod) bool) (most int) {
	t.Helper()
	eventually(t, "the watch has seen all pods", func(ctx context.Context) error {
		list, err := env.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range list.Items {
			if pod := &list.Items[i]; r.seen[pod.Name] != pod.ResourceVersion || !is(pod) {
				return fmt.Errorf("%s, version %s of %s", stateOf(pod), r.seen[pod.Name], pod.ResourceVersion)
			}
		}
		return nil
	})
	r.stop()
	r.watches.Wait()
	return r.most
}
