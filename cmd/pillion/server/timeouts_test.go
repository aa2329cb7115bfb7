// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// pipes is a listener whose connections are in memory, so that their deadlines are of a test's own clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestServerTimeouts checks that Pillion keeps an idle connection longer than an API server does,
// and that no timeout is longer than a caller may wait for an answer. The times are written out,
// because a constant of the server would be compared with itself.
func TestServerTimeouts(t *testing.T) {
	const idle, answer, unused = 120 * time.Second, 30 * time.Second, 5 * time.Second
	// An API server calls webhooks with client-go's transport. It closes a connection that it has not used for 90 s, the
	// IdleConnTimeout of http.DefaultTransport, which SetOldTransportDefaults in k8s.io/apimachinery/pkg/util/net sets.
	if theirs := utilnet.SetTransportDefaults(&http.Transport{}).IdleConnTimeout; idle <= theirs {
		t.Errorf("idle connections are closed after %v, and API servers use them for %v", idle, theirs)
	}
	const get, post = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
	for name, row := range map[string]struct {
		send string
		deaf bool
		want time.Duration // until it is closed
	}{
		"it says nothing":       {"", false, idle},
		"half a header":         {get[:20], false, idle},
		"idle after an answer":  {get, false, idle},
		"a header after answer": {get + get[:20], false, idle},
		"half a body":           {post + "1234", false, idle + answer},
		"it does not read":      {get, true, answer + unused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{log: slog.New(slog.DiscardHandler)}
				server := s.newHTTPServer(&s.toWebhooks, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, strings.Repeat("x", 100<<10))
				}))
				listener := make(pipes)
				go func() { _ = server.Serve(listener) }()
				ours, theirs := net.Pipe()
				defer ours.Close()
				closed := make(chan struct{})
				theirs = &connection{Conn: &closing{Conn: theirs, closed: closed}}
				began := time.Now()
				listener <- theirs
				go func() { _, _ = io.WriteString(ours, row.send) }()
				if !row.deaf {
					go func() { _, _ = io.Copy(io.Discard, ours) }()
				}
				<-closed
				if took := time.Since(began); took < row.want || took > row.want+time.Second {
					t.Errorf("it is closed after %v, not %v", took, row.want)
				}
				close(listener)
				if err := server.Shutdown(context.Background()); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// closing is closed when the server has closed a connection.
type closing struct {
	net.Conn
	closed chan struct{}
	once   sync.Once // net/http and the limit may close a connection at the same time
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
