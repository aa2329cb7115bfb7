// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// largeBody is the size above which requests are processed one at a time, as are requests
	// with more than [jsontree.FewValues] values. A tree of tiny objects takes up to 100 times the memory
	// of its text, so this bounds memory. Other requests do not wait for them.
	largeBody = 64 << 10
	// freeBody and freeAnswer are how much memory each request may hold uncounted. 99 of 100 requests
	// need no more, so they find room whatever other requests hold. The limits on connections and
	// streams bound how many of them there are.
	freeBody, freeAnswer = 16 << 10, 32 << 10
	// maxValues is how many values a body may have, and valueSize about how many bytes a value takes
	// during processing; the first [jsontree.FewValues] are not counted. A pod of 3 MiB, the most that an
	// API server accepts, has about 100,000 values.
	maxValues, valueSize = 1 << 18, 128
	// longestWait bounds the wait of a request. Instead of a longer wait, the API server retries
	// (see [Limiter]). After this time an overload has no effect any more.
	longestWait = time.Second
	// hurry is how long a client may still take to send a body larger than freeBody if memory is short.
	hurry = time.Second
)

// queue is where a request waits for its turn.
type queue int

// Large requests are processed one at a time. So are templates, which take long to compile: in a queue of
// their own, because their authors must not keep pods waiting.
const (
	small queue = iota
	large
	ofTemplates
)

// Limiter bounds the time and the memory of requests. A request that would exceed the bounds
// gets 429 and Retry-After: 1. The API server then retries after a second, up to
// ten times within the webhook's timeout (client-go's rest.Request), before it
// applies failurePolicy.
//
// The limiter estimates from the number of waiting requests and the duration of recent
// ones whether it can answer in time. The durations are wall-clock time: if a CPU limit or
// the garbage collector slows everything down, fewer requests may wait.
//
// A request that does not wait takes no lock; it only uses atomic counters.
type Limiter struct {
	memory, maxMemory atomic.Int64 // bytes
	gates             [3]gate      // by queue
	shed              *prometheus.CounterVec
}

// NewLimiter returns a limiter that has slots requests processed at a time, whose bodies, values
// and answers take at most memory bytes. Processing only needs a CPU, so more than a few slots for
// each CPU gain nothing.
func NewLimiter(registry prometheus.Registerer, slots int, memory int64) *Limiter {
	metrics := promauto.With(registry)
	l := &Limiter{shed: metrics.NewCounterVec(prometheus.CounterOpts{
		Name: "pillion_webhook_shed_total",
		Help: "Requests answered with 429, by reason: queue (the request would wait too long), deadline (it waited too long), memory.",
	}, []string{"reason"})}
	l.SetMemory(memory)
	for q, slots := range [3]int{small: slots, large: 1, ofTemplates: 1} {
		l.gates[q].openSlots(slots)
	}
	for _, why := range []string{shedQueue, shedDeadline, shedMemory} {
		l.shed.WithLabelValues(why)
	}
	gauge := func(name, help string, value func() int64) {
		metrics.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("pillion_webhook_working", "Requests being processed.", l.Working)
	gauge("pillion_webhook_waiting", "Requests waiting to be processed.", l.Waiting)
	gauge("pillion_webhook_memory_bytes", "Memory of the bodies, values and responses of requests, without the uncounted part of each request.", l.memory.Load)
	gauge("pillion_webhook_memory_limit_bytes", "Limit of pillion_webhook_memory_bytes.", l.maxMemory.Load)
	return l
}

// SetMemory changes the limit in bytes.
func (l *Limiter) SetMemory(bytes int64) { l.maxMemory.Store(bytes) }

// Working returns the number of requests in processing.
func (l *Limiter) Working() (n int64) {
	for q := range l.gates {
		n += l.gates[q].countWorking()
	}
	return n
}

// Waiting returns the number of requests that wait for their turn.
func (l *Limiter) Waiting() (n int64) {
	for q := range l.gates {
		n += l.gates[q].countWaiting()
	}
	return n
}

func shedRejection(why string) *rejection {
	r := newRejection(http.StatusTooManyRequests, "too many requests at once (%s); retry in a second", why)
	r.retryAfter, r.shed = "1", why
	return r
}

// isMemoryShort reports whether memory is short.
func (l *Limiter) isMemoryShort() bool { return l != nil && l.memory.Load() > l.maxMemory.Load()/2 }

// checkRoom rejects a body that has no room, before reading it.
func (l *Limiter) checkRoom(r *http.Request) *rejection {
	if l != nil && r.ContentLength > freeBody && l.memory.Load()+r.ContentLength > l.maxMemory.Load() {
		return shedRejection(shedMemory)
	}
	return nil
}

// countShed counts a request that was shed.
func (l *Limiter) countShed(rejected *rejection) {
	if rejected != nil && rejected.shed != "" {
		l.shed.WithLabelValues(rejected.shed).Inc()
	}
}

// share is the part of a limiter that one request uses.
type share struct {
	limiter *Limiter // nil: no limit
	// The caller waits until deadline, or until ctx is done.
	ctx      context.Context
	deadline time.Time
	memory   int64
	denied   *rejection // why there is no room for more values
	gate     *gate
	began    time.Time
}

// takeMemory counts memory before it is allocated. The memory that was copied from is garbage by then
// but not collected yet, so nothing is given back before the end.
func (s *share) takeMemory(bytes int) bool {
	l := s.limiter
	if l == nil {
		return true
	}
	s.memory += int64(bytes)
	return l.memory.Add(int64(bytes)) <= l.maxMemory.Load()
}

// Values implements [jsontree.Room]: a request with many small values is processed like one with a large body.
func (s *share) Values(n int) bool {
	if s.limiter == nil {
		return true
	}
	switch {
	case !s.takeMemory(n * valueSize):
		s.denied = shedRejection(shedMemory)
	case s.gate == &s.limiter.gates[small]:
		s.leaveQueue()
		s.denied = s.enterQueue(large)
	}
	return s.denied == nil
}

// enterQueue waits for the request's turn. The body was read before that, so that no slow
// caller keeps others waiting. It waits at most half of the remaining time:
// the other half is for the API server's retry.
func (s *share) enterQueue(q queue) *rejection {
	if s.limiter == nil {
		return nil
	}
	g := &s.limiter.gates[q]
	if g.free.Add(-1) < 0 {
		switch why := g.waitTurn(s.ctx, min(longestWait, time.Until(s.deadline)/2)); why {
		case "":
		case callerGone:
			return tooLate()
		default:
			return shedRejection(why)
		}
	}
	s.gate, s.began = g, time.Now()
	return nil
}

// leaveQueue lets the next request enter.
func (s *share) leaveQueue() {
	if s.gate != nil {
		s.gate.admitNext(time.Since(s.began))
		s.gate = nil
	}
}

// releaseMemory releases the memory.
func (s *share) releaseMemory() {
	if s.limiter != nil {
		s.limiter.memory.Add(-s.memory)
	}
}
