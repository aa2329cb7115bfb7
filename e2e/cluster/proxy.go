// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
)

// Proxy stands before several servers as a Service does: it passes each connection on to any one of them
// and leaves it there.
type Proxy struct {
	listener net.Listener
	backends []string // host:port

	mu     sync.Mutex
	next   int                            // the next connection's backend, or anyBackend
	passed []int                          // the backends of the connections since StartAt
	conns  map[*net.TCPConn]chan struct{} // closed when the connection has ended
}

// anyBackend stands for one chosen at random, and noBackend for none: who connects waits for an answer.
const (
	anyBackend = -1
	noBackend  = -2
)

// NewProxy starts a Proxy before the endpoints. ctx limits the start only.
func NewProxy(ctx context.Context, endpoints ...Endpoint) (*Proxy, error) {
	p := &Proxy{next: anyBackend, conns: map[*net.TCPConn]chan struct{}{}}
	for _, e := range endpoints {
		u, err := url.Parse(e.URL)
		if err != nil {
			return nil, err
		}
		p.backends = append(p.backends, u.Host)
	}
	var err error
	if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go p.accept(context.WithoutCancel(ctx)) // until it is closed
	return p, nil
}

// URL is the Proxy's, for an Endpoint.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Close ends the Proxy and all its connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.hangUp()
	return err
}

// StartAt ends all connections and passes the next one on to backend i, and those that follow to the other
// ones in turn. There must be no request on its way.
func (p *Proxy) StartAt(i int) {
	p.hangUp()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.passed = i, nil
}

// Any ends StartAt: again, each connection is passed on to any backend.
func (p *Proxy) Any() { p.StartAt(anyBackend) }

// Hang ends all connections, and answers on no other one until Any or StartAt.
func (p *Proxy) Hang() { p.StartAt(noBackend) }

// Passed returns the backends that connections have been passed on to since StartAt.
func (p *Proxy) Passed() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.passed)
}

// hangUp ends all connections from the server's side, and waits until the clients have ended them too: a
// client that still thinks that a connection is good would send a request into it.
func (p *Proxy) hangUp() {
	p.mu.Lock()
	conns := maps.Clone(p.conns)
	p.mu.Unlock()
	for c := range conns {
		_ = c.CloseWrite()
	}
	for _, ended := range conns {
		<-ended
	}
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		client, ended := conn.(*net.TCPConn), make(chan struct{})
		p.mu.Lock()
		i := p.next
		switch i {
		case noBackend:
		case anyBackend:
			i = rand.IntN(len(p.backends))
		default:
			p.next = (i + 1) % len(p.backends)
		}
		p.passed = append(p.passed, i)
		p.conns[client] = ended
		p.mu.Unlock()
		go func() {
			defer close(ended)
			if i == noBackend {
				p.swallow(client)
			} else {
				p.pipe(ctx, client, p.backends[i])
			}
		}()
	}
}

// swallow reads until the client ends the connection, and says nothing.
func (p *Proxy) swallow(client *net.TCPConn) {
	defer p.forget(client)
	_, _ = io.Copy(io.Discard, client)
}

func (p *Proxy) forget(client *net.TCPConn) {
	client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
}

// pipe copies both ways until both have ended.
func (p *Proxy) pipe(ctx context.Context, client *net.TCPConn, backend string) {
	defer p.forget(client)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", backend)
	if err != nil {
		return // the client sees that its connection is closed
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client) // how a connection ends is between its ends
		_ = server.CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.CloseWrite()
	<-done
}
