// SPDX-License-Identifier: Apache-2.0

package serve

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
	// MaxConnections is how many there are to a listener at a time, at about 60 KiB each while they
	// are in use. Half of them are kept for a next request; an API server keeps 25 idle ones.
	MaxConnections = 1000
	// maxAdmin is how many of them may come to the admin address, if none is kept.
	maxAdmin = 100
	// MaxHTTP2 is how many of them speak HTTP/2, with so many requests at a time each. API servers
	// speak it to localhost only; a connection takes up to 50 times as much as one of HTTP/1.1,
	// which all others get instead.
	MaxHTTP2, maxStreams = 16, 32
	// spareFiles is how many file descriptors are left for everything but connections.
	spareFiles = 32
)

// connections are those to one listener. They are counted here because netutil.LimitListener of golang.org/x/net lets new
// connections wait: it closes no silent one, and knows nothing of HTTP/2.
type connections struct {
	accepting, draining atomic.Bool
	open, http2         atomic.Int64
	kept                atomic.Int64 // those that had an answer
	less                atomic.Int64 // than MaxConnections, as the process has too few file descriptors
	busy                sync.Map     // when a net.Conn began that had no answer yet, and while draining when a request did
}

// full says that no more are to be kept for a next request.
func (c *connections) full() bool { return c.kept.Load() > c.most()/2 }

// most is how many may be open.
func (c *connections) most() int64 { return MaxConnections - c.less.Load() }

// finish waits until every connection has had its last answer, which asks the caller to close it, or was not used
// since draining began. Shutdown alone would drop a request whose headers it has not read yet.
func (c *connections) finish(ctx context.Context, began time.Time) {
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

// count keeps account of the connections. If there are too many, the one that has waited longest for its first
// answer goes: who only connects can hold a place for as long as others need none.
func (c *connections) count(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.busy.Store(conn, time.Now())
		if c.open.Add(1) > c.most() {
			c.closeOldest()
		}
	case http.StateActive:
		if c.draining.Load() {
			c.busy.Store(conn, time.Now())
		}
	case http.StateIdle:
		if _, fresh := c.busy.LoadAndDelete(conn); fresh {
			c.kept.Add(1)
		}
	case http.StateClosed, http.StateHijacked:
		if _, fresh := c.busy.LoadAndDelete(conn); !fresh {
			c.kept.Add(-1)
		}
		c.open.Add(-1)
	}
}

func (c *connections) closeOldest() {
	var oldest net.Conn
	var began time.Time
	c.busy.Range(func(conn, since any) bool {
		if at := since.(time.Time); !at.IsZero() && (oldest == nil || at.Before(began)) {
			oldest, began = conn.(net.Conn), at
		}
		return true
	})
	if oldest != nil {
		c.busy.CompareAndSwap(oldest, began, time.Time{}) // it goes already
		go oldest.Close()                                 // says goodbye by TLS, which may take a while
	}
}

// listener accepts connections, and has some closed where the process has no file descriptor left.
type listener struct {
	net.Listener
	to     *connections
	costly *connections // of both listeners, those that may be many
}

// Accept implements [net.Listener]. If there are too many connections it takes its time, so that each has a second
// until others need its place. After an error of this kind net/http tries again soon.
func (l *listener) Accept() (net.Conn, error) {
	if most := l.to.most(); l.to.open.Load() >= most {
		<-time.After(time.Second / time.Duration(most))
	}
	conn, err := l.Listener.Accept()
	if err == nil {
		return &connection{Conn: conn, of: l.to}, nil
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		l.costly.less.Store(MaxConnections - max(l.costly.open.Load()-spareFiles, 1))
		for range spareFiles {
			l.costly.closeOldest()
		}
	}
	return nil, err
}

// connection knows whether it is one of those that speak HTTP/2.
type connection struct {
	net.Conn
	of    *connections
	state atomic.Int32
}

// What a connection is: others may close it at any moment.
const (
	isOpen = iota
	isHTTP2
	isClosed
)

// Close implements [net.Conn].
func (c *connection) Close() error {
	if c.state.Swap(isClosed) == isHTTP2 {
		c.of.http2.Add(-1)
	}
	return c.Conn.Close()
}

// mayHTTP2 makes it one of those if there is room for one more.
func (c *connection) mayHTTP2() bool {
	if c.of.http2.Add(1) <= MaxHTTP2 && c.state.CompareAndSwap(isOpen, isHTTP2) {
		return true
	}
	c.of.http2.Add(-1)
	return false
}

// chooseProtocol lets HTTP/2 be spoken by a few connections.
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

// http2Limits are what the server sets aside for a connection: the least that it may, for a body comes in frames of
// 16 KiB and is read at once.
func http2Limits() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 256 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
	}
}

const (
	// requestTime is the longest that an API server waits for a webhook.
	requestTime = 30 * time.Second
	// drainTime fits, with 5 s of waiting before it and 5 s for the Lease and the last traces after it, into the 30 s that
	// Kubernetes gives a pod to end. API servers wait 5 s by the manifests.
	drainTime = 15 * time.Second
	// idleTime is longer than the 90 s after which an API server closes a connection
	// that it does not use, one that it has never used included: a request on one that
	// is just being closed here would be lost, for a POST is not sent again.
	idleTime = 2 * time.Minute
	// unusedTime is after what a connection, in use before or not, is taken for idle, as a new one is
	// by [http.Server.Shutdown]: an API server may have dialled it for a request that then went by another one.
	unusedTime = 5 * time.Second
	// ConnectionAge is how long one is kept. An API server goes on with those that it has, so without
	// an end to them a replica that is added would never be asked; and a TLS handshake a minute is cheap.
	ConnectionAge = time.Minute
)
