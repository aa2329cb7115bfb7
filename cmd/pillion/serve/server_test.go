// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"log/slog"
	"strings"
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
		to := s.server(&s.toWebhooks, nil).ErrorLog
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
