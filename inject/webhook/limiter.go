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
	// largeBody is the size in bytes above which requests are processed one at a time. So are requests
	// with more than [jsontree.FewValues] values. A tree of tiny objects takes up to 100 times the memory
	// of its text, so this bounds memory. Small requests do not wait for large ones.
	largeBody = 64 << 10
	// freeBody and freeAnswer are how many bytes each request may hold uncounted. 99 of 100 requests
	// need no more, so they find room whatever other requests hold. The limits on connections and
	// streams bound how many requests there are.
	freeBody, freeAnswer = 16 << 10, 32 << 10
	// maxValues is how many values a body may have, and valueSize about how many bytes a value takes
	// during processing. The first [jsontree.FewValues] values are not counted. A pod of 3 MiB, the most that an
	// API server accepts, has about 100,000 values.
	maxValues, valueSize = 1 << 18, 128
	// longestWait bounds the wait of a request. A request that would wait longer gets 429, and the API server retries
	// (see [Limiter]). So an overload has no effect any more after this time.
	longestWait = time.Second
	// hurry is how long a client may still take to send a body larger than freeBody if memory is short.
	hurry = time.Second
)

// queue is where a request waits for its turn.
type queue int

const (
	small       queue = iota
	large             // processed one at a time, see largeBody
	ofTemplates       // also one at a time, because compiling takes long, and apart from pods, which must not wait for it
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

// NewLimiter returns a limiter, and registers its metrics. Slots is how many small requests are processed at a time: more than a few for
// each CPU gain nothing, because processing only needs a CPU. Memory is how many bytes the bodies, values and answers of all requests
// may take, see [Limiter.SetMemory].
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

// SetMemory changes the limit of memory, in bytes.
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

// isMemoryShort reports whether requests hold more than half of the memory that they may hold together.
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

// takeMemory counts memory before it is allocated, in bytes. It returns false if that exceeds the limit. A buffer that was replaced by
// a larger one still counts until the request ends, because it may not have been collected yet.
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

// enterQueue waits for the request's turn, or returns a rejection. The body was read before, so that no slow
// caller keeps others waiting. It waits at most half of the time that is left for the request:
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

// releaseMemory gives all memory of the request back.
func (s *share) releaseMemory() {
	if s.limiter != nil {
		s.limiter.memory.Add(-s.memory)
	}
}
