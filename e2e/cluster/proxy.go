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

// Proxy simulates a Service in front of several servers: it forwards each connection to one of
// them.
type Proxy struct {
	listener net.Listener
	backends []string // host:port

	mu     sync.Mutex
	next   int                            // backend of the next connection, or anyBackend
	passed []int                          // backends of the connections since StartAt
	conns  map[*net.TCPConn]chan struct{} // closed after the connection's end
}

// anyBackend means a random one, and noBackend means none: clients get no answer.
const (
	anyBackend = -1
	noBackend  = -2
)

// NewProxy starts a Proxy for the endpoints. The context limits only the start.
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

// URL returns the Proxy's URL, for an Endpoint.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Close ends the Proxy and all its connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.hangUp()
	return err
}

// StartAt closes all connections. It forwards the next one to backend i, and the following
// ones to the others in turn. No request may be in progress.
func (p *Proxy) StartAt(i int) {
	p.hangUp()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.passed = i, nil
}

// Any undoes StartAt: each connection goes to a random backend again.
func (p *Proxy) Any() { p.StartAt(anyBackend) }

// Hang closes all connections, and answers none until Any or StartAt.
func (p *Proxy) Hang() { p.StartAt(noBackend) }

// Passed returns the backends of the connections since StartAt.
func (p *Proxy) Passed() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.passed)
}

// hangUp closes all connections from the server's side and waits until the clients have closed
// them too. Otherwise, a client could send a request on a closed connection.
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

// swallow reads until the client closes the connection, and answers nothing.
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

// pipe copies in both directions until both ends are closed.
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
		_, _ = io.Copy(server, client) // errors do not matter here
		_ = server.CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.CloseWrite()
	<-done
}
