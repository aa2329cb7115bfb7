// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// slowConn is a connection that receives nothing before its deadline.
type slowConn struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (c *slowConn) SetReadDeadline(deadline time.Time) error {
	c.deadline = deadline
	return nil
}

func (c *slowConn) Read([]byte) (int, error) {
	<-time.After(time.Until(c.deadline))
	return 0, os.ErrDeadlineExceeded
}

func (c *slowConn) Close() error { return nil }

// TestTimeoutIsTheCallers checks, by a clock of the test, that a caller gets an answer within its
// timeout. TestTimeout shows that net/http does the same.
func TestTimeoutIsTheCallers(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"": 30 * time.Second, "?timeout=50ms": 50 * time.Millisecond, "?timeout=5s": 5 * time.Second,
		"?a=b&timeout=2s": 2 * time.Second, "?timeout=1h": 30 * time.Second, "?timeout=1%73": time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEdge(load(t, sidecar))
			c := &slowConn{ResponseRecorder: httptest.NewRecorder()}
			r := post(t, webhook.PathMutate+query, nil)
			r.Body = c
			began := time.Now()
			e.ServeHTTP(c, r)
			if took := time.Since(began); c.Code != http.StatusServiceUnavailable || took != want {
				t.Errorf("%q: %d after %v, want 503 after %v", query, c.Code, took, want)
			}
		})
	}
	for _, query := range []string{"?timeout=0s", "?timeout=-1s", "?timeout=soon"} {
		if w := newEdge(load(t, sidecar)).answer(post(t, webhook.PathMutate+query, nil)); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", query, w.Code)
		}
	}
}

// TestCompressed checks that Pillion decompresses no body, however small.
func TestCompressed(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 100 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	good := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	for _, row := range []struct {
		encoding string
		body     []byte
		want     int
	}{
		{"gzip", packed.Bytes(), http.StatusUnsupportedMediaType},
		{"", packed.Bytes(), http.StatusBadRequest},
		{"deflate, br", good, http.StatusUnsupportedMediaType},
		{"identity", good, http.StatusOK},
	} {
		e := newEdge(load(t, sidecar))
		r := post(t, webhook.PathMutate, row.body)
		if row.encoding != "" {
			r.Header.Set("Content-Encoding", row.encoding)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := e.answer(r)
		runtime.ReadMemStats(&after)
		if memory := after.TotalAlloc - before.TotalAlloc; w.Code != row.want || memory > 2<<20 {
			t.Errorf("%q: %d, want %d, for %d bytes", row.encoding, w.Code, row.want, memory)
		}
	}
}

// TestWarningsAreFew checks that there are at most 16 warnings of 256 characters each, because the API
// server truncates warnings beyond 4096 characters in total.
func TestWarningsAreFew(t *testing.T) {
	for n, want := range map[int]int{1: 1, 15: 15, 16: 16, 17: 16, 100: 16} {
		var annotations []string
		for i := range n {
			annotations = append(annotations, fmt.Sprintf(`"agent-%d.pillion.dev/level":"wrong"`, i))
		}
		body := reviewOf(t, "v1", "CREATE", "shop", []byte(strings.Replace(pod, `"metadata":{`,
			`"metadata":{"annotations":{`+strings.Join(annotations, ",")+`},`, 1)))
		e := newEdge(load(t, sampleTemplates(n, true)...))
		r, _ := checkContract(t, webhook.PathMutate, body, e.answer(post(t, webhook.PathMutate, body)))
		last := ""
		if len(r.Warnings) > 0 {
			last = r.Warnings[len(r.Warnings)-1]
		}
		if len(r.Warnings) != want || strings.Contains(last, "more warnings") != (n > want) {
			t.Errorf("%d mistakes: %d warnings, the last one %q", n, len(r.Warnings), last)
		}
	}
}
