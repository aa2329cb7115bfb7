// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"time"
)

const (
	// jump is more than a clock drifts between two readings.
	jump = time.Minute
	// believed is how long a clock that jumped must stay consistent before it counts.
	believed = time.Hour
)

// moment is the current time according to two clocks. The wall clock can be set by users and
// programs. The steady clock adds the elapsed time to the last trusted reading of the wall
// clock, so it cannot be set.
type moment struct{ wall, steady time.Time }

// isPast reports whether t is in the past by both clocks.
func (m moment) isPast(t time.Time) bool { return m.wall.After(t) && m.steady.After(t) }

// isFuture reports whether t is in the future by both clocks.
func (m moment) isFuture(t time.Time) bool { return m.wall.Before(t) && m.steady.Before(t) }

// verifyPair is [verifyPair] at a moment. It succeeds if the pair verifies by one of the clocks. A CA
// may expire before the certificates that it issued.
func (m moment) verifyPair(pair *tls.Certificate, host string, roots *x509.CertPool) error {
	err := verifyPair(pair, host, roots, m.wall)
	if err != nil && verifyPair(pair, host, roots, m.steady) == nil {
		return nil
	}
	return err
}

// clock returns moments. If the wall clock is set (by a user, a virtual machine's host or a
// time server), valid certificates stay in use, unless the new time holds for an hour. It is
// not safe for concurrent use.
type clock struct {
	wall    func() time.Time
	running func() time.Duration // time since a fixed moment

	base    time.Time     // the last trusted wall time
	at      time.Duration // when it was read
	strayed time.Duration // since when the wall time differs
	astray  bool
}

// newClock returns a clock that reads the machine's time.
func newClock() *clock {
	start := time.Now()
	return &clock{
		wall:    func() time.Time { return time.Now().Round(0) }, // drops the monotonic reading
		running: func() time.Duration { return time.Since(start) },
	}
}

func (c *clock) now() moment {
	wall, running := c.wall(), c.running()
	steady := c.base.Add(running - c.at)
	off := wall.Sub(steady).Abs() > jump
	switch {
	case c.base.IsZero(), !off, c.astray && running-c.strayed >= believed:
		c.base, c.at, c.astray = wall, running, false
		return moment{wall, wall}
	case !c.astray:
		c.astray, c.strayed = true, running
	}
	return moment{wall, steady}
}

// Clock is a clock for concurrent use: Now takes no lock. One goroutine calls Tick repeatedly.
type Clock struct {
	clock *clock
	known atomic.Pointer[known]
}

// known is the last trusted wall time, and when it was read.
type known struct {
	base time.Time
	at   time.Duration
}

// NewClock returns a Clock that reads the machine's time.
func NewClock() *Clock {
	c := &Clock{clock: newClock()}
	c.Tick()
	return c
}

// Tick reads the wall clock.
func (c *Clock) Tick() {
	c.clock.now()
	c.known.Store(&known{c.clock.base, c.clock.at})
}

// Now returns the time of the wall clock, and the time that it would show if it had not been
// set. Usually they are equal.
func (c *Clock) Now() (wall, steady time.Time) {
	last := c.known.Load()
	wall, steady = c.clock.wall(), last.base.Add(c.clock.running()-last.at)
	if wall.Sub(steady).Abs() <= jump {
		steady = wall
	}
	return wall, steady
}
