// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"net/http"
	"sync"
	"testing"
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
				conn := &connection{Conn: ours, of: c}
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
		if (&connection{of: c}).mayHTTP2() {
			given++
		}
	}
	if given != MaxHTTP2 {
		t.Errorf("%d places are given", given)
	}
}

// TestTooManyConnections checks which connection is closed if there is one too many: the one that
// has waited longest for its first answer. A connection that got an answer stays open.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	c := &connections{}
	c.open.Store(MaxConnections - 3)
	closed := func(conn net.Conn) bool { return conn.SetDeadline(time.Time{}) != nil }
	var conns []net.Conn
	for i := range 5 {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		conns = append(conns, ours)
		c.count(ours, http.StateNew)
		c.count(ours, http.StateActive)
		if i == 0 {
			c.count(ours, http.StateIdle)
		}
	}
	clitest.Until(t, "the oldest two are closed", func() (bool, string) { return closed(conns[1]) && closed(conns[2]), "not yet" })
	for _, i := range []int{0, 3, 4} {
		if closed(conns[i]) {
			t.Errorf("connection %d is closed", i)
		}
	}
}
