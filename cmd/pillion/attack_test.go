// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacker is a client of the webhooks' address that keeps to no rule. What it opened stays open until [attacker.stop].
type attacker struct {
	t       *testing.T
	address string
	admin   string
	crowd   bool // others attack at the same moment

	mu    sync.Mutex
	conns []net.Conn
}

func (a *attacker) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		_ = c.Close()
	}
	a.conns = nil
}

// each does something so many times, some of them at the same moment. What fails for the attacker is no matter.
func (a *attacker) each(times int, do func(i int)) {
	var wg sync.WaitGroup
	for first := range 8 {
		wg.Go(func() {
			for i := first; i < times; i += 8 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// dial gives a connection that speaks that protocol, or none where the server has enough of them.
func (a *attacker) dial(proto string) net.Conn {
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}}
	var c net.Conn
	var err error
	if proto == "" {
		c, err = d.NetDialer.DialContext(a.t.Context(), "tcp", a.address)
	} else {
		c, err = d.DialContext(a.t.Context(), "tcp", a.address)
	}
	if err != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, c)
	return c
}

const promise = "POST /mutate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

// http1 opens a connection and writes a request that promises so many bytes, and as much of it as is given.
func (a *attacker) http1(length int, body string) {
	if c := a.dial("http/1.1"); c != nil {
		_, _ = fmt.Fprintf(c, promise, length)
		_, _ = io.WriteString(c, body)
	}
}

// h2 is a connection of HTTP/2 whose frames are written by hand.
type h2 struct {
	net.Conn
	*http2.Framer
	next  uint32
	block bytes.Buffer
	coder *hpack.Encoder
}

// http2 opens an HTTP/2 connection. With deaf, the client accepts no byte of an answer and never
// reads.
func (a *attacker) http2(deaf bool) *h2 {
	c := a.dial("h2")
	if c == nil {
		return nil
	}
	if c.(*tls.Conn).ConnectionState().NegotiatedProtocol != "h2" {
		c.Close()
		return nil
	}
	h := &h2{Conn: c, Framer: http2.NewFramer(c, c), next: 1}
	h.coder = hpack.NewEncoder(&h.block)
	_, _ = io.WriteString(c, http2.ClientPreface)
	window := uint32(1 << 30)
	if deaf {
		window = 0
	}
	_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	if !deaf {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	return h
}

// head begins a request that promises so many bytes; more are further headers.
func (h *h2) head(length int, more ...string) uint32 {
	h.block.Reset()
	for _, pair := range [][2]string{
		{":method", "POST"},
		{":scheme", "https"},
		{":authority", "x"},
		{":path", "/mutate?timeout=30s"},
		{"content-type", "application/json"},
		{"content-length", strconv.Itoa(length)},
	} {
		_ = h.coder.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]})
	}
	for i, value := range more {
		_ = h.coder.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: value, Sensitive: true})
	}
	id := h.next
	h.next += 2
	const most = 16 << 10
	block := h.block.Bytes()
	first := block[:min(len(block), most)]
	block = block[len(first):]
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(block) == 0})
	for len(block) > 0 {
		part := block[:min(len(block), most)]
		block = block[len(part):]
		_ = h.WriteContinuation(id, len(block) == 0, part)
	}
	return id
}

// begin begins headers that do not end.
func (h *h2) begin() uint32 {
	id := h.next
	h.next += 2
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.field(":method", "POST")})
	return id
}

// field is a header in its wire form.
func (h *h2) field(name, value string) []byte {
	h.block.Reset()
	_ = h.coder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
	return h.block.Bytes()
}

// send sends a whole request.
func (h *h2) send(body string) {
	_ = h.WriteData(h.head(len(body)), true, []byte(body))
}

// innocent does what an API server does: it sends a pod, and retries after a second if the answer
// asks for that.
func (s *served) innocent(t *testing.T, client *http.Client, body string) {
	t.Helper()
	var last string
	until(t, "an innocent client is answered", func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.webhook+"/mutate?timeout=5s", strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		if err != nil {
			t.Fatalf("an innocent client lost its connection: %v", err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		last = fmt.Sprintf("%s: %.200s", response.Status, text)
		if response.StatusCode == http.StatusTooManyRequests {
			<-time.After(100 * time.Millisecond)
			return false, last
		}
		if response.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"patch"`)) {
			t.Fatalf("an innocent client got %s", last)
		}
		return true, ""
	})
}

// cpuTime is what the process has used, as the kernel counts it: in hundredths of a second.
func (s *served) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		t.Skip("SKIPPED: the CPU of a process can be measured only on Linux: ", err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):])) // from the third on
	user, err := strconv.Atoi(fields[11])
	must(t, err)
	system, err := strconv.Atoi(fields[12])
	must(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// peak is the most that the process had in memory since the last call, in MiB.
func (s *served) peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Skip("SKIPPED: the memory of a process can be measured only on Linux: ", err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	must(t, err)
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0o600))
	return kib >> 10
}
