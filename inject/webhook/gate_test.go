// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestGate lets callers enter, leave, give up and be called at the same time. There are never more
// callers inside than slots, all of them leave, and in the end all slots are free.
func TestGate(t *testing.T) {
	t.Parallel()
	const slots = 3
	var g gate
	g.openSlots(slots)
	var inside, through, gaveUp atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 500 {
				if g.free.Add(-1) < 0 {
					ctx, cancel := context.WithCancel(context.Background())
					if rand.IntN(4) == 0 {
						cancel()
					}
					why := g.waitTurn(ctx, time.Duration(rand.IntN(200))*time.Microsecond)
					cancel()
					if why != "" {
						gaveUp.Add(1)
						continue
					}
				}
				if n := inside.Add(1); n > slots {
					t.Errorf("%d are inside", n)
				}
				for range rand.IntN(20) {
					runtime.Gosched()
				}
				inside.Add(-1)
				through.Add(1)
				g.admitNext(time.Microsecond)
			}
		})
	}
	wg.Wait()
	if g.free.Load() != slots || len(g.turn) != 0 || g.countWorking() != 0 || g.countWaiting() != 0 {
		t.Errorf("%d slots of %d are free, %d calls are left", g.free.Load(), slots, len(g.turn))
	}
	if through.Load() == 0 || gaveUp.Load() == 0 {
		t.Errorf("this tests nothing: %d came through, %d gave up", through.Load(), gaveUp.Load())
	}
}

// TestGateEstimates checks that a caller that cannot be answered in time gets its answer at once.
func TestGateEstimates(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		took, most time.Duration
		want       string
	}{
		{time.Second, time.Hour, callerGone}, // waits until its caller is gone
		{time.Hour, time.Minute, shedQueue},
		{time.Hour, 0, shedQueue},
		{0, 0, shedDeadline},
	} {
		var g gate
		g.openSlots(1)
		g.mean.Store(int64(row.took))
		g.free.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		if row.want == callerGone {
			cancel()
		}
		g.free.Add(-1)
		if got := g.waitTurn(ctx, row.most); got != row.want || g.countWaiting() != 0 {
			t.Errorf("%v each, %v at most: %q, want %q; %d wait", row.took, row.most, got, row.want, g.countWaiting())
		}
		cancel()
	}
}

func BenchmarkLimiter(b *testing.B) {
	var g gate
	g.openSlots(4)
	b.ReportAllocs()
	for b.Loop() {
		if g.free.Add(-1) < 0 {
			b.Fatal("nobody else is here")
		}
		began := time.Now()
		g.admitNext(time.Since(began))
	}
}
