// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject"
)

// Observed gives what counts the answer about a pod.
func Observed(t testing.TB, h *Handler, pod []byte) func() {
	t.Helper()
	result, err := h.Injector().Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: pod})
	if err != nil {
		t.Fatal(err)
	}
	e := &exchange{webhook: "mutate", result: result}
	return func() { h.Metrics.observe(e, 100*time.Microsecond) }
}

// Spoil overwrites what the last request left in the memory that the next one gets.
func Spoil(h *Handler) {
	for range 100 { // a pool may keep one back
		s, ok := h.scratch.Get().(*scratch)
		if !ok {
			return
		}
		for _, memory := range [][]byte{s.body.Bytes(), s.patch, s.answer} {
			for i := range memory[:cap(memory)] {
				memory[:cap(memory)][i] = '#'
			}
		}
	}
}
