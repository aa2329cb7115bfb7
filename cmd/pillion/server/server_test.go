// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestConnectionAge checks that a connection is closed after some time, so that an added replica
// gets some of the next ones.
func TestConnectionAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &connection{accepted: time.Now()}
		for i, want := range []bool{false, false, true} {
			if got := new(server).isLast(conn); got != want {
				t.Errorf("after %v it is the last request: %t", time.Duration(i)*ConnectionAge*2/3, got)
			}
			<-time.After(ConnectionAge * 2 / 3)
		}
	})
}

// TestConnectionLog checks that any number of failed connections writes only a few lines to the
// log, and the number of omitted lines.
func TestConnectionLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &server{log: slog.New(slog.NewTextHandler(&out, nil))}
		to := s.newHTTPServer(&s.toWebhooks, nil).ErrorLog
		for range 1000 {
			to.Print("no handshake")
		}
		<-time.After(time.Second)
		to.Print("no handshake")
		if n := strings.Count(out.String(), "no handshake"); n != 11 || !strings.Contains(out.String(), " skipped=990\n") {
			t.Errorf("%d lines: %s", n, &out)
		}
	})
}

// late is a listener that accepts its last connection just before it is closed, and returns it later.
type late struct {
	net.Listener
	last   net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements [net.Listener].
func (l *late) Accept() (conn net.Conn, err error) {
	<-l.closed
	<-time.After(time.Second)
	if conn, l.last = l.last, nil; conn == nil {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close implements [net.Listener].
func (l *late) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// TestLastConnection checks that a connection gets an answer if the server accepts it at the moment
// at which it stops listening.
func TestLastConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &server{options: &Options{}, log: slog.New(slog.NewTextHandler(&out, nil))}
		server := s.newHTTPServer(&s.toWebhooks, s.untilLast(http.NotFoundHandler()))
		ours, theirs := net.Pipe()
		accepts, served := &late{last: theirs, closed: make(chan struct{})}, make(chan struct{})
		failed := make(chan error, 1)
		go func() {
			defer close(served)
			failed <- server.Serve(&listener{accepts, &s.toWebhooks, &s.toWebhooks})
		}()
		answered := make(chan error)
		go func() {
			_, _ = io.WriteString(ours, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			_, err := http.ReadResponse(bufio.NewReader(ours), nil) //nolint:bodyclose // the server closes the connection
			_ = ours.Close()
			answered <- err
		}()
		if err := s.drainRequests(t.Context(), accepts, server, served, failed); err != nil {
			t.Error(err)
		}
		_ = server.Close() // as run does
		_ = theirs.Close() // the process ends
		if err := <-answered; err != nil {
			t.Error("no answer:", err)
		}
		if strings.Contains(out.String(), "interrupted") {
			t.Error(&out)
		}
	})
}
