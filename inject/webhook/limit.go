// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// largeBody is where the few requests begin that are worked on one at a time, and
	// so are those of more than fewValues. A tree of tiny objects takes up to 100 times
	// its text, so this is what bounds memory; and nobody else has to wait for them.
	largeBody = 64 << 10
	// freeBody and freeAnswer are what every request may hold without being counted: 99 of 100
	// need no more. So they find room whatever others hold, and how many there are at a time
	// is bounded by the server's connections and streams.
	freeBody, freeAnswer = 16 << 10, 32 << 10
	// maxValues is how many values a body may have, and valueSize about how many bytes one takes
	// while the body is worked on; the first [tree.FewValues] are not counted. A pod of the 3 MiB
	// that an API server takes has some 100,000.
	maxValues, valueSize = 1 << 18, 128
	// longestWait is what is better spent asking again: see [Limiter]. It is also the
	// time after which nothing is left of an overload.
	longestWait = time.Second
	// hurry is how long a body may still take that holds more than freeBody when memory runs short.
	hurry = time.Second
)

// Limiter bounds the time and the memory of requests. What would take more is
// answered with 429 and Retry-After: 1, which the API server takes as: ask again
// in a second, up to ten times, while the webhook's timeout lasts (client-go's
// rest.Request). Only then does failurePolicy count.
//
// Whether a request can be answered in time is estimated from how many wait and
// how long the last ones took, by the clock on the wall: where a CPU limit or
// the garbage collector slows everything down, fewer are let in to wait.
//
// The way of a request that need not wait has no lock, only atomic counters.
type Limiter struct {
	memory, maxMemory atomic.Int64 // bytes
	small, large      gate
	shed              *prometheus.CounterVec
}

// NewLimiter has so many requests worked on at a time, and their bodies, values and
// answers take so many bytes. To work on one needs a CPU and nothing else, so more than a few for
// each CPU gain nothing.
func NewLimiter(registry prometheus.Registerer, slots int, memory int64) *Limiter {
	l := &Limiter{shed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pillion_webhook_shed_total",
		Help: "Requests answered with 429 by reason: queue (it would wait too long), deadline (it waited too long), memory.",
	}, []string{"reason"})}
	l.SetMemory(memory)
	l.small.open(slots)
	l.large.open(1)
	for _, why := range []string{shedQueue, shedDeadline, shedMemory} {
		l.shed.WithLabelValues(why)
	}
	gauge := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	registry.MustRegister(l.shed,
		gauge("pillion_webhook_working", "Requests that are worked on.", l.Working),
		gauge("pillion_webhook_waiting", "Requests that wait for others to be done.", l.Waiting),
		gauge("pillion_webhook_memory_bytes", "What the bodies, values and answers of requests take, beyond what every request may.", l.memory.Load),
		gauge("pillion_webhook_memory_limit_bytes", "What they may take.", l.maxMemory.Load))
	return l
}

// SetMemory changes how many bytes that is.
func (l *Limiter) SetMemory(bytes int64) { l.maxMemory.Store(bytes) }

// Working counts the requests that are worked on.
func (l *Limiter) Working() int64 { return l.small.working() + l.large.working() }

// Waiting counts the requests that wait for their turn.
func (l *Limiter) Waiting() int64 { return l.small.waiting() + l.large.waiting() }

// Why a request is shed.
const (
	shedQueue    = "queue"
	shedDeadline = "deadline"
	shedMemory   = "memory"
)

func shed(why string) *refusal {
	r := refuse(http.StatusTooManyRequests, "too many requests at once (%s); ask again in a second", why)
	r.retryAfter, r.shed = "1", why
	return r
}

// share is what a request has of the limiter, to be given back.
type share struct {
	memory int64
	denied *refusal // why there is no room for more values
	gate   *gate
	began  time.Time
}

// take counts memory before it is allocated. What it was copied from is garbage by then
// and not collected yet, so nothing is given back before the end.
func (l *Limiter) take(s *share, bytes int) bool {
	if l == nil {
		return true
	}
	s.memory += int64(bytes)
	return l.memory.Add(int64(bytes)) <= l.maxMemory.Load()
}

// pressed says whether memory runs short.
func (l *Limiter) pressed() bool { return l != nil && l.memory.Load() > l.maxMemory.Load()/2 }

// receive refuses a body that has no room before it is read.
func (l *Limiter) receive(r *http.Request) *refusal {
	if l != nil && r.ContentLength > freeBody && l.memory.Load()+r.ContentLength > l.maxMemory.Load() {
		return shed(shedMemory)
	}
	return nil
}

// Values implements [tree.Room]: who brings many small values is worked on like who brings a large body.
func (e *exchange) Values(n int) bool {
	l, s := e.limiter, &e.share
	if l == nil {
		return true
	}
	switch {
	case !l.take(s, n*valueSize):
		s.denied = shed(shedMemory)
	case s.gate == &l.small:
		l.leave(e)
		s.denied = l.enter(e, largeBody+1)
	}
	return s.denied == nil
}

// enter waits for the turn of a request whose body has come, so that no slow
// caller keeps others waiting. It waits half of the time that is left at most:
// the other half is for being asked again.
func (l *Limiter) enter(e *exchange, body int) *refusal {
	if l == nil {
		return nil
	}
	g := &l.small
	if body > largeBody || e.webhook == webhookAdvise { // what API types take is many times as much
		g = &l.large
	}
	if g.free.Add(-1) < 0 {
		switch why := g.wait(e.ctx, min(longestWait, time.Until(e.deadline)/2)); why {
		case "":
		case callerGone:
			return tooLate()
		default:
			return shed(why)
		}
	}
	e.share.gate, e.share.began = g, time.Now()
	return nil
}

// leave lets the next one work.
func (l *Limiter) leave(e *exchange) {
	if e.share.gate != nil {
		e.share.gate.leave(time.Since(e.share.began))
		e.share.gate = nil
	}
}

// forget gives back the memory.
func (l *Limiter) forget(e *exchange) {
	if l != nil {
		l.memory.Add(-e.share.memory)
	}
}

// count counts a request that was shed.
func (l *Limiter) count(e *exchange) {
	if e.refused != nil && e.refused.shed != "" {
		l.shed.WithLabelValues(e.refused.shed).Inc()
	}
}
