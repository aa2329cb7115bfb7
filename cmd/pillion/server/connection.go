// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// MaxHTTP2 limits the connections that use HTTP/2, and maxStreams the concurrent requests of
// each. API servers use HTTP/2 only to localhost. An HTTP/2 connection takes up to 50 times
// as much memory as one of HTTP/1.1, so all other connections get HTTP/1.1.
const MaxHTTP2, maxStreams = 16, 32

// connection is a connection that may use HTTP/2. Until its first answer, it measures how long
// its client keeps the server waiting.
type connection struct {
	net.Conn
	http2    *atomic.Int64 // the connections that use HTTP/2
	accepted time.Time
	state    atomic.Int32
	keeping  atomic.Int32
	reading  stopwatch
	writing  stopwatch
	whole    atomic.Bool // the first request has been read
	answered atomic.Bool
	leaving  atomic.Bool // it is being closed
}

// unwrapConnection returns the connection below TLS.
func unwrapConnection(conn net.Conn) *connection {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	return conn.(*connection)
}

// Read implements [net.Conn].
func (c *connection) Read(b []byte) (int, error) {
	if c.answered.Load() {
		return c.Conn.Read(b)
	}
	c.reading.start()
	defer c.reading.stop()
	return c.Conn.Read(b)
}

// Write implements [net.Conn].
func (c *connection) Write(b []byte) (int, error) {
	if c.answered.Load() {
		return c.Conn.Write(b)
	}
	c.writing.start()
	defer c.writing.stop()
	return c.Conn.Write(b)
}

// waitedForClient returns how long the client has kept the server waiting, and whether the connection is
// being closed. While it handles a request, net/http reads on to notice that the client is gone,
// so reading does not count then.
func (c *connection) waitedForClient() (d time.Duration, leaving bool) {
	d = c.writing.total()
	if !c.whole.Load() {
		d += c.reading.total()
	}
	return d, c.leaving.Load()
}

// isOurTurn reports whether the client has sent something that the server has not read for a while.
// The time for which it has waited then does not count: the goroutine that reads waits for a CPU.
func (c *connection) isOurTurn() bool {
	return !c.whole.Load() && hasUnread(c.Conn) && c.reading.restartIfLong()
}

// stopwatch adds up times that do not overlap.
type stopwatch struct {
	mu    sync.Mutex
	sum   time.Duration
	since time.Time // zero while it stands still
}

func (s *stopwatch) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
}

func (s *stopwatch) stop() {
	total := s.total()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum, s.since = total, time.Time{}
}

// restartIfLong drops the time since it was started, and reports whether that was long.
func (s *stopwatch) restartIfLong() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	long := !s.since.IsZero() && time.Since(s.since) > time.Second/10
	if long {
		s.since = time.Now()
	}
	return long
}

func (s *stopwatch) total() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.sum
	}
	return s.sum + time.Since(s.since)
}

// connectionKey is the context key for the [connection] of a request.
type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, unwrapConnection(conn))
}

func connectionOf(r *http.Request) *connection {
	return r.Context().Value(connectionKey{}).(*connection)
}

// What a connection is for [connections.kept].
const (
	isUnkept = iota
	isKept
	isGone
)

// firstBodies returns a handler that also notes when a connection's first request has been read.
func firstBodies(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn := connectionOf(r); !conn.answered.Load() {
			conn.whole.Store(r.Body == http.NoBody)
			r.Body = &firstBody{r.Body, conn}
		}
		handler.ServeHTTP(w, r)
	})
}

// firstBody is the body of a connection's first request.
type firstBody struct {
	io.ReadCloser
	of *connection
}

// Read implements [io.Reader].
func (b *firstBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.of.whole.Store(true)
	}
	return n, err
}

// The states of a connection. Other goroutines may close it at any moment.
const (
	isOpen = iota
	isHTTP2
	isClosed
)

// Close implements [net.Conn].
func (c *connection) Close() error {
	if c.state.Swap(isClosed) == isHTTP2 {
		c.http2.Add(-1)
	}
	return c.Conn.Close()
}

// mayHTTP2 reports whether there is room for another HTTP/2 connection, and if so, counts this
// one.
func (c *connection) mayHTTP2() bool {
	if c.http2.Add(1) <= MaxHTTP2 && c.state.CompareAndSwap(isOpen, isHTTP2) {
		return true
	}
	c.http2.Add(-1)
	return false
}
