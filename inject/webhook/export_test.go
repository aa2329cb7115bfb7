// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject"
)

// Observed returns a function that counts the answer about a pod.
func Observed(t testing.TB, h *Handler, pod []byte) func() {
	t.Helper()
	result, err := h.injector(&exchange{request: &admissionRequest{}}).Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: pod})
	if err != nil {
		t.Fatal(err)
	}
	e := &exchange{endpoint: mutate, answer: injected{result}}
	return func() { h.Metrics.observeRequest(e, 100*time.Microsecond) }
}

// Answered returns the answer about a pod after the test changes the result, with its metrics and its log line.
func Answered(t testing.TB, h *Handler, pod []byte, tamper func(*inject.Result)) string {
	t.Helper()
	result, err := h.injector(&exchange{request: &admissionRequest{}}).Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: pod})
	if err != nil {
		t.Fatal(err)
	}
	tamper(result)
	e := &exchange{endpoint: mutate, answer: injected{result}, request: &admissionRequest{UID: "u", version: "admission.k8s.io/v1"}, scratch: &scratch{}, buffers: &buffers{}}
	answer := string(encodeAnswer(e))
	h.Metrics.observeRequest(e, time.Millisecond)
	h.logRequest(e, httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathMutate, nil), time.Millisecond)
	return answer
}

// Spoil overwrites the memory of the last request, which the next one gets.
func Spoil(h *Handler) {
	spoil := func(all ...[]byte) {
		for _, memory := range all {
			for i := range memory[:cap(memory)] {
				memory[:cap(memory)][i] = '#'
			}
		}
	}
	for range 100 { // a pool may keep one back
		if b, ok := h.buffers.Get().(*buffers); ok {
			spoil(b.body, b.answer)
		}
		if s, ok := h.scratch.Get().(*scratch); ok {
			spoil(s.patch)
		}
	}
}

// Clip returns the part of a string that the API server gets.
func Clip(text string) string { return clipLine(text, maxAudit) }

// Lent returns a function that counts how often new memory was allocated for a request.
func Lent(h *Handler) func() int64 {
	var n atomic.Int64
	h.scratch = sync.Pool{New: func() any { n.Add(1); return &scratch{} }}
	return n.Load
}

// RecentPods returns how many pods a Handler remembers of each namespace.
func RecentPods(h *Handler) map[string]int {
	all := map[string]int{}
	for g := range h.recent.places {
		for k := range h.recent.places[g] {
			for _, pod := range []*recentPod{h.recent.places[g][k].created.Load(), h.recent.places[g][k].final.Load()} {
				if pod != nil {
					all[pod.namespace]++
				}
			}
		}
	}
	return all
}
