// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"time"
)

const (
	// jump is a difference that no clock drifts by between two looks at it.
	jump = time.Minute
	// believed is how long a clock that jumped has to say the same before it counts.
	believed = time.Hour
)

// moment is what time it may be: by the clock on the wall, which somebody may
// set, and by what it said when it was last believed and the time that has run
// since, which nobody can set.
type moment struct{ wall, steady time.Time }

// passed reports whether t is over by both.
func (m moment) passed(t time.Time) bool { return m.wall.After(t) && m.steady.After(t) }

// before reports whether t is still to come by both.
func (m moment) before(t time.Time) bool { return m.wall.Before(t) && m.steady.Before(t) }

// verify is [verify] at a moment: what is good by one of both is good. A CA may end
// before what it issued.
func (m moment) verify(pair *tls.Certificate, host string, roots *x509.CertPool) error {
	err := verify(pair, host, roots, m.wall)
	if err != nil && verify(pair, host, roots, m.steady) == nil {
		return nil
	}
	return err
}

// clock tells moments. One that is set (by a person, a virtual machine's host, a
// time server) takes no good certificate out of service, unless it goes on saying
// so for an hour. It is not for concurrent use.
type clock struct {
	wall    func() time.Time
	running func() time.Duration // since any moment

	base    time.Time     // what the wall said
	at      time.Duration // when
	strayed time.Duration // since when the wall says something else
	astray  bool
}

// newClock takes the machine's clock.
func newClock() *clock {
	start := time.Now()
	return &clock{
		wall:    func() time.Time { return time.Now().Round(0) }, // without the monotonic reading
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

// Clock is such a clock for many at the same moment: Now takes no lock. One goroutine calls Tick all the time.
type Clock struct {
	clock *clock
	known atomic.Pointer[known]
}

// known is what the clock on the wall said when it was believed last, and when that was.
type known struct {
	base time.Time
	at   time.Duration
}

// NewClock takes the machine's clock.
func NewClock() *Clock {
	c := &Clock{clock: newClock()}
	c.Tick()
	return c
}

// Tick takes note of the clock on the wall.
func (c *Clock) Tick() {
	c.clock.now()
	c.known.Store(&known{c.clock.base, c.clock.at})
}

// Now is what time it is by the clock on the wall, and what it would be if nobody had set that. Mostly they are equal.
func (c *Clock) Now() (wall, steady time.Time) {
	last := c.known.Load()
	wall, steady = c.clock.wall(), last.base.Add(c.clock.running()-last.at)
	if wall.Sub(steady).Abs() <= jump {
		steady = wall
	}
	return wall, steady
}
