// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"sync/atomic"
	"time"
)

// Why a request is shed.
const (
	shedQueue    = "queue"
	shedDeadline = "deadline"
	shedMemory   = "memory"
)

const callerGone = "gone"

// gate admits a limited number of requests at a time. The others wait, and are admitted in the order of their arrival.
//
// A semaphore of golang.org/x/sync would take a lock for every request, and would not estimate the wait.
type gate struct {
	slots int64
	free  atomic.Int64  // free slots; if negative, the number of requests that wait
	turn  chan struct{} // admits one waiting request
	mean  atomic.Int64  // nanoseconds of processing, averaged over recent requests
}

func (g *gate) openSlots(slots int) {
	g.slots, g.turn = int64(slots), make(chan struct{}, slots)
	g.free.Store(g.slots)
}

func (g *gate) countWorking() int64 { return g.slots - max(g.free.Load(), 0) }
func (g *gate) countWaiting() int64 { return max(-g.free.Load(), 0) }

// waitTurn waits until the gate admits the request, which has made free negative before. It returns "" then. It returns the reason
// if the request gives up: it would wait longer than most, it has waited that long, or its caller is gone.
func (g *gate) waitTurn(ctx context.Context, most time.Duration) string {
	if time.Duration(g.countWaiting()*g.mean.Load()/g.slots) > most && g.withdrawWait() {
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
	if g.withdrawWait() {
		return why
	}
	<-g.turn // it was admitted at the same moment
	return ""
}

// withdrawWait ends the wait of a request that gives up. It returns false if all waiting requests were
// admitted meanwhile. Then this one was admitted, too, and must take its turn.
func (g *gate) withdrawWait() bool {
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

// admitNext ends the turn of a request, which took so long, and admits the next one. If two requests write the mean at the same
// moment, one duration does not count in it, which is harmless.
func (g *gate) admitNext(took time.Duration) {
	mean := g.mean.Load()
	g.mean.Store(mean + (int64(took)-mean)/16)
	if g.free.Add(1) <= 0 {
		g.turn <- struct{}{}
	}
}
