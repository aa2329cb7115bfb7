// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// TestHTTP2Places checks that if many connections request HTTP/2 and close at the same moment, at
// most MaxHTTP2 get it, and in the end all slots are free.
func TestHTTP2Places(t *testing.T) {
	t.Parallel()
	c := &connections{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				ours, theirs := net.Pipe()
				defer theirs.Close()
				conn := &connection{Conn: ours, http2: &c.http2}
				wg.Go(func() { _ = conn.Close() })
				conn.mayHTTP2()
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	if n := c.http2.Load(); n != 0 {
		t.Errorf("%d places are lost", n)
	}
	given := 0
	for range 2 * MaxHTTP2 {
		if (&connection{http2: &c.http2}).mayHTTP2() {
			given++
		}
	}
	if given != MaxHTTP2 {
		t.Errorf("%d places are given", given)
	}
}

// TestTooManyConnections checks which connections are closed if there are too many: those whose
// clients keep the server waiting. A client that waits for the server keeps its connection,
// however long that takes, and so does one that got an answer.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	clients := []struct {
		name, send string
		each       time.Duration // between two bytes
		closed     bool
	}{
		{name: "answered and silent since", send: "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "waits for an answer", send: "POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"},
		{name: "waits for an answer without a body", send: "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "says nothing", closed: true},
		{name: "sends slowly", send: "POST / HTTP/1.1\r\nHost: " + strings.Repeat("x", 1000), each: time.Second / 10, closed: true},
		{name: "sends half a body", send: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234", closed: true},
	}
	synctest.Test(t, func(t *testing.T) {
		s := &server{log: slog.New(slog.DiscardHandler)}
		s.toWebhooks.less.Store(MaxConnections - int64(len(clients)))
		server := s.newHTTPServer(&s.toWebhooks, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			if r.URL.Path == "/slow" {
				<-time.After(requestTime)
			}
		}))
		comes := make(pipes)
		go func() { _ = server.Serve(&listener{comes, &s.toWebhooks, &s.toWebhooks}) }()
		closed := make([]chan struct{}, len(clients))
		connect := func() (ours net.Conn, closed chan struct{}) {
			ours, theirs := net.Pipe()
			closed = make(chan struct{})
			comes <- &closing{Conn: theirs, closed: closed}
			go func() { _, _ = io.Copy(io.Discard, ours) }()
			return ours, closed
		}
		for i, client := range clients {
			ours, done := connect()
			defer ours.Close()
			closed[i] = done
			go func() {
				for _, b := range []byte(client.send) {
					if _, err := ours.Write([]byte{b}); err != nil {
						return
					}
					if client.each > 0 { // a timer that is due at once crashes Go's race detector in a bubble
						<-time.After(client.each)
					}
				}
			}()
		}
		<-time.After(requestTime / 2)
		for _, client := range clients {
			if client.closed {
				ours, _ := connect()
				defer ours.Close()
			}
		}
		synctest.Wait()
		for i, client := range clients {
			select {
			case <-closed[i]:
				if !client.closed {
					t.Errorf("%s: it is closed", client.name)
				}
			default:
				if client.closed {
					t.Errorf("%s: it is open", client.name)
				}
			}
		}
		close(comes)
		_ = server.Close()
		<-time.After(requestTime) // until the handlers have ended
	})
}

// TestUnread checks that the time does not count for which bytes of a client wait for the server.
func TestUnread(t *testing.T) {
	t.Parallel()
	sockets, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at once there
	clitest.Must(t, err)
	defer sockets.Close()
	client, err := net.Dial("tcp", sockets.Addr().String()) //nolint:noctx // as above
	clitest.Must(t, err)
	defer client.Close()
	server, err := sockets.Accept()
	clitest.Must(t, err)
	defer server.Close()
	c := &connections{}
	conn := &connection{Conn: server, http2: &c.http2}
	c.trackState(conn, http.StateNew)
	conn.reading.since = time.Now().Add(-time.Minute) // a Read began
	if _, wait := c.findSlowest(); wait < time.Minute {
		t.Errorf("a silent client has kept the server waiting for %v", wait)
	}
	_, err = client.Write([]byte("x"))
	clitest.Must(t, err)
	clitest.Until(t, "the byte has arrived", func() (bool, string) { return hasUnread(server), "not yet" })
	if _, wait := c.findSlowest(); wait > time.Minute/2 {
		t.Errorf("a client whose byte nobody reads has kept the server waiting for %v", wait)
	}
	_, err = conn.Read(make([]byte, 1))
	clitest.Must(t, err)
	if hasUnread(server) {
		t.Error("there is something to read after all was read")
	}
}

// TestKeptConnections checks that at most half of the connections are kept for the next request,
// whatever clients send, so that other clients get answers.
func TestKeptConnections(t *testing.T) {
	t.Parallel()
	const most = 10
	for name, parts := range map[string][2]string{
		"all requests end at once": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", "1"},
		"one after another":        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""},
		"no path":                  {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{log: slog.New(slog.DiscardHandler)}
				s.toWebhooks.less.Store(MaxConnections - most)
				server := s.newHTTPServer(&s.toWebhooks, s.untilLast(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				})))
				comes := make(pipes)
				go func() { _ = server.Serve(&listener{comes, &s.toWebhooks, &s.toWebhooks}) }()
				var all []net.Conn
				for range most {
					ours, theirs := net.Pipe()
					comes <- theirs
					_, _ = io.WriteString(ours, parts[0])
					all = append(all, ours)
				}
				for _, conn := range all {
					_, _ = io.WriteString(conn, parts[1])
					go func() { _, _ = io.Copy(io.Discard, conn) }()
				}
				<-time.After(unusedTime)
				if open, kept := s.toWebhooks.open.Load(), s.toWebhooks.kept.Load(); open != most/2 || kept != most/2 {
					t.Errorf("%d are open, and %d of them kept", open, kept)
				}
				close(comes)
				_ = server.Close()
				<-time.After(requestTime)
				if open, kept := s.toWebhooks.open.Load(), s.toWebhooks.kept.Load(); open+kept != 0 {
					t.Errorf("in the end, %d are open, and %d of them kept", open, kept)
				}
			})
		})
	}
}

// failing is a listener that first returns its errors, and then connections.
type failing struct {
	net.Listener
	errs []error
}

// Accept implements [net.Listener].
func (l *failing) Accept() (conn net.Conn, err error) {
	if len(l.errs) > 0 {
		err, l.errs = l.errs[0], l.errs[1:]
		return nil, err
	}
	conn, _ = net.Pipe()
	return conn, nil
}

// TestTooFewFiles checks that the limit of connections falls if there are no file descriptors, and rises
// again while connections are accepted.
func TestTooFewFiles(t *testing.T) {
	t.Parallel()
	var webhooks, admin connections
	admin.less.Store(MaxConnections - maxAdmin)
	webhooks.open.Store(100)
	accept := func(listener *listener, times int) {
		for range times {
			_, _ = listener.Accept()
		}
	}
	check := func(want int64) {
		t.Helper()
		if most := webhooks.maxOpen(); most != want || admin.maxOpen() != maxAdmin {
			t.Errorf("the limits are %d and %d, want %d and %d", most, admin.maxOpen(), want, maxAdmin)
		}
	}
	accepts := &listener{&failing{}, &webhooks, &webhooks}
	accept(accepts, 2*raiseAfter)
	check(MaxConnections)
	accept(&listener{&failing{errs: []error{syscall.ENFILE, syscall.EMFILE}}, &admin, &webhooks}, 2)
	check(100 - spareFiles)
	webhooks.open.Store(0)
	accept(accepts, 10*raiseAfter)
	check(110 - spareFiles)
	accept(accepts, MaxConnections*raiseAfter)
	check(MaxConnections)
}
