// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// MaxConnections limits the open connections of a listener. A connection in use takes about
	// 60 KiB. Half of them may be kept for the next request; an API server keeps 25 idle ones.
	MaxConnections = 1000
	// maxAdmin is the limit for the admin address, where no connection is kept.
	maxAdmin = 100
	// spareFiles is the number of file descriptors reserved for other purposes.
	spareFiles = 32
	// raiseAfter is the number of accepted connections after which a lowered limit rises by one: slowly,
	// because each attempt that fails closes spareFiles connections.
	raiseAfter = 4
)

// connections counts the connections of one listener. It does not use netutil.LimitListener of
// golang.org/x/net, which makes new connections wait: that closes no silent connection, and
// does not know about HTTP/2.
type connections struct {
	accepting, draining atomic.Bool
	open, http2         atomic.Int64
	kept                atomic.Int64 // those that may be kept for the next request
	less                atomic.Int64 // reduces MaxConnections
	short               atomic.Int64 // as less, if it is more: for some time after the process had too few file descriptors
	accepted            atomic.Int64 // while short is set
	busy                sync.Map     // since when a net.Conn waits for its first answer, or, while draining, for any
}

// maxOpen returns the limit of open connections.
func (c *connections) maxOpen() int64 { return MaxConnections - max(c.less.Load(), c.short.Load()) }

// lowerLimit sets the limit below the number of open connections, because there are no file descriptors for
// more.
func (c *connections) lowerLimit() {
	c.short.Store(MaxConnections - max(c.open.Load()-spareFiles, 1))
	for range spareFiles {
		c.closeSlowest()
	}
}

// raiseLimit undoes what lower did, in small steps: something else may have needed the file descriptors for
// a moment only.
func (c *connections) raiseLimit() {
	if c.short.Load() > 0 && c.accepted.Add(1)%raiseAfter == 0 {
		c.short.Add(-1)
	}
}

// waitForLastAnswers waits until every connection has sent its last answer, which asks the caller to close
// it, or has not been used since draining began. Shutdown alone would drop a request whose
// headers it has not read yet.
func (c *connections) waitForLastAnswers(ctx context.Context, began time.Time) {
	for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		quiet := c.open.Load() == 0 || time.Since(began) > unusedTime
		c.busy.Range(func(_, since any) bool {
			quiet = quiet && time.Since(since.(time.Time)) > unusedTime
			return quiet
		})
		if quiet {
			return
		}
	}
}

// trackState tracks the states of connections. If there are too many, it closes the one whose client
// has kept the server waiting longest. So a client that sends no request keeps its connection
// only until another one needs the place.
func (c *connections) trackState(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.busy.Store(conn, time.Now())
		if c.open.Add(1) > c.maxOpen() {
			c.closeSlowest()
		}
	case http.StateActive:
		if c.draining.Load() {
			c.busy.Store(conn, time.Now())
		}
	case http.StateIdle:
		if _, fresh := c.busy.LoadAndDelete(conn); fresh {
			unwrapConnection(conn).answered.Store(true)
		}
	case http.StateClosed, http.StateHijacked:
		c.busy.Delete(conn)
		c.stopCounting(unwrapConnection(conn))
		c.open.Add(-1)
	}
}

// mayKeep reports whether a connection may be kept for the next request, and if so, counts it. It
// does so when a request comes: after the answers, too many might be kept at once.
func (c *connections) mayKeep(conn *connection) bool {
	if conn.keeping.CompareAndSwap(isUnkept, isKept) {
		c.kept.Add(1)
	}
	if c.kept.Load() > c.maxOpen()/2 && conn.keeping.CompareAndSwap(isKept, isUnkept) {
		c.kept.Add(-1)
	}
	return conn.keeping.Load() == isKept
}

// stopCounting ends the counting of a connection. A request that uses HTTP/2 may still be in progress.
func (c *connections) stopCounting(conn *connection) {
	if conn.keeping.Swap(isGone) == isKept {
		c.kept.Add(-1)
	}
}

// findSlowest returns the connection without an answer whose client has kept the server waiting
// longest, and how long, or nil. Its age would be wrong: a busy server needs a while itself.
func (c *connections) findSlowest() (slowest net.Conn, longest time.Duration) {
	const most = 64 // how many may be forgiven; each takes a walk
	for range most {
		slowest, longest = nil, 0
		c.busy.Range(func(key, _ any) bool {
			conn := key.(net.Conn)
			if wait, leaving := unwrapConnection(conn).waitedForClient(); !leaving && (slowest == nil || wait > longest) {
				slowest, longest = conn, wait
			}
			return true
		})
		if slowest == nil || !unwrapConnection(slowest).isOurTurn() {
			break
		}
	}
	return slowest, longest
}

func (c *connections) closeSlowest() {
	if conn, _ := c.findSlowest(); conn != nil && unwrapConnection(conn).leaving.CompareAndSwap(false, true) {
		go conn.Close() // sends the TLS goodbye, which may take a while
	}
}

// listener accepts connections, and closes some if the process has no file descriptor left.
type listener struct {
	net.Listener
	to     *connections
	costly *connections // the connections of the listener that may have many
}

// Accept implements [net.Listener]. At the limit, it slows down, so that each client may keep the
// server waiting for a second before another one replaces it, even if all came at the same time.
// After a temporary error, net/http calls it again soon.
func (l *listener) Accept() (net.Conn, error) {
	for most := l.to.maxOpen(); l.to.open.Load() >= most; {
		<-time.After(time.Second / time.Duration(most))
		if slowest, wait := l.to.findSlowest(); slowest == nil || wait >= time.Second {
			break
		}
	}
	conn, err := l.Listener.Accept()
	if err == nil {
		l.costly.raiseLimit()
		return &connection{Conn: conn, http2: &l.to.http2, accepted: time.Now()}, nil
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		l.costly.lowerLimit()
	}
	return nil, err
}

// chooseProtocol allows HTTP/2 for a few connections.
func chooseProtocol(config *tls.Config) {
	others := config.Clone()
	others.NextProtos = []string{"http/1.1"}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		conn, ok := hello.Conn.(*connection)
		if ok && slices.Contains(hello.SupportedProtos, "h2") && !conn.mayHTTP2() {
			return others, nil
		}
		return nil, nil
	}
}

// http2Limits returns the smallest buffers for a connection. They suffice, because a body
// comes in frames of 16 KiB and is read at once.
func http2Limits() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 256 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
	}
}

const (
	// requestTime is the longest time that an API server waits for a webhook.
	requestTime = 30 * time.Second
	// drainTime fits into the 30 s that Kubernetes gives a pod to terminate, with 5 s of waiting
	// before it, and 5 s after it for the Lease and the last traces. The manifests make API
	// servers wait 5 s.
	drainTime = 15 * time.Second
	// idleTime is longer than the 90 s after which an API server closes an unused connection,
	// including one that it never used. If Pillion closed a connection first, a request that
	// arrives at that moment would be lost, because clients do not repeat a POST.
	idleTime = 2 * time.Minute
	// unusedTime is the time after which a connection without a request counts as idle, as in
	// [http.Server.Shutdown]. An API server may have opened it for a request that then used
	// another connection.
	unusedTime = 5 * time.Second
	// ConnectionAge is the longest time that a connection is kept. API servers keep using open
	// connections, so without this limit they would never call a new replica. One TLS handshake
	// per minute is cheap.
	ConnectionAge = time.Minute
)
