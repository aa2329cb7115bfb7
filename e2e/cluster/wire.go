// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// wire adds latency in front of a server: its answers arrive later. So more calls are in
// progress than a client keeps connections for, and it must open new ones repeatedly.
type wire struct {
	listener net.Listener
	backend  atomic.Pointer[string] // host:port
	latency  time.Duration
	accepted atomic.Int64
}

func newWire(ctx context.Context, host, backend string, latency time.Duration) (*wire, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	w := &wire{listener: listener, latency: latency}
	w.backend.Store(&backend)
	go w.accept(context.WithoutCancel(ctx))
	return w, nil
}

func (w *wire) accept(ctx context.Context) {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.accepted.Add(1)
		go w.carry(ctx, conn.(*net.TCPConn))
	}
}

func (w *wire) carry(ctx context.Context, client *net.TCPConn) {
	defer client.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", *w.backend.Load())
	if err != nil {
		return // the client sees that its connection is closed
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.CloseWrite()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 {
			<-time.After(w.latency)
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
