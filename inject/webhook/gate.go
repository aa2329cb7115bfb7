// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"sync/atomic"
	"time"
)

// gate lets a number of requests through at a time, the others in their order.
type gate struct {
	slots int64
	free  atomic.Int64  // slots; below zero, how many wait that were not called yet
	turn  chan struct{} // calls one of those that wait
	mean  atomic.Int64  // nanoseconds from its turn to its end, of the last requests
}

func (g *gate) open(slots int) {
	g.slots, g.turn = int64(slots), make(chan struct{}, slots)
	g.free.Store(g.slots)
}

func (g *gate) working() int64 { return g.slots - max(g.free.Load(), 0) }
func (g *gate) waiting() int64 { return max(-g.free.Load(), 0) }

const callerGone = "gone"

// wait is for who found free below zero. It gives "" when it is its turn, or why
// it never will be.
func (g *gate) wait(ctx context.Context, most time.Duration) string {
	if time.Duration(g.waiting()*g.mean.Load()/g.slots) > most && g.withdraw() {
		return shedQueue
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	why := shedDeadline
	select {
	case <-g.turn:
		return ""
	case <-timer.C:
	case <-ctx.Done():
		why = callerGone
	}
	if g.withdraw() {
		return why
	}
	<-g.turn // it was called at this very moment
	return ""
}

// withdraw is for who waits no longer. It fails where all who wait have been
// called: then so has this one.
func (g *gate) withdraw() bool {
	for {
		free := g.free.Load()
		if free >= 0 {
			return false
		}
		if g.free.CompareAndSwap(free, free+1) {
			return true
		}
	}
}

// leave calls the next one. That two write the mean at the same moment, and one
// of them in vain, does no harm.
func (g *gate) leave(took time.Duration) {
	mean := g.mean.Load()
	g.mean.Store(mean + (int64(took)-mean)/16)
	if g.free.Add(1) <= 0 {
		g.turn <- struct{}{}
	}
}
