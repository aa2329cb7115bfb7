// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

// slow is an engine's work that continues until it is released, or for some time.
type slow struct {
	only  string // the namespace, or "" for all
	letGo chan struct{}
	takes time.Duration
}

func (s *slow) Namespace(name string) (request.Namespace, error) {
	if s.only == "" || s.only == name {
		select {
		case <-s.letGo:
		case <-time.After(s.takes):
		}
	}
	return request.Namespace{Name: name}, nil
}

// overHTTP1 calls as an API server calls a Service: with one connection for each concurrent request.
func overHTTP1(s *httptest.Server) *http.Client {
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 25
	return &http.Client{Transport: transport}
}

// outcome is the answer to one caller.
type outcome struct {
	status     int
	retryAfter string
	said       metav1.Status
	took       time.Duration
	err        error
}

func ask(ctx context.Context, client *http.Client, url string, body []byte) (o outcome) {
	began := time.Now()
	defer func() { o.took = time.Since(began) }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return outcome{err: err}
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return outcome{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	o = outcome{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After"), err: err}
	if o.status != http.StatusOK {
		_ = json.Unmarshal(text, &o.said)
	}
	return o
}

// wellShed reports whether the API server will retry.
func (o outcome) wellShed() bool {
	return o.status == http.StatusTooManyRequests && o.retryAfter == "1" &&
		o.said.Kind == "Status" && o.said.Reason == metav1.StatusReasonTooManyRequests && strings.HasPrefix(o.said.Message, "too many requests")
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

func (e *edge) idle() bool { return e.Limiter.Working() == 0 && e.Limiter.Waiting() == 0 }

// metric returns the sum of a counter or a gauge over its labels.
func (e *edge) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := e.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestOverload checks that at three times the possible load, each request that gets an answer gets
// it in time, and all others are asked to retry. One second after the last request, which is as
// long as a queue may be, the overload is over. The clock is the bubble's, so other load on the
// machine does not matter.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(load(t, sidecar))
		const takes, timeout = 5 * time.Millisecond, 3 * time.Second
		e.Namespaces = &slow{takes: takes}
		body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
		ask := func() outcome {
			began := time.Now()
			w := e.answer(post(t, fmt.Sprint(webhook.PathMutate, "?timeout=", timeout), body))
			o := outcome{status: w.Code, retryAfter: w.Header().Get("Retry-After"), took: time.Since(began)}
			_ = json.Unmarshal(w.Body.Bytes(), &o.said)
			return o
		}

		began := time.Now()
		var wg sync.WaitGroup
		outcomes := make([]outcome, 3*2*time.Second/takes)
		for i := range outcomes {
			<-time.After(takes / 3)
			wg.Go(func() { outcomes[i] = ask() })
		}
		last := time.Now()
		for ask().status != http.StatusOK {
			<-time.After(takes)
		}
		if took := time.Since(last); took > time.Second+2*takes {
			t.Errorf("%v after the last request another one is answered", took)
		}
		wg.Wait()

		answered, told := 0, 0
		for _, o := range outcomes {
			switch {
			case o.took > timeout:
				t.Errorf("too late: %+v", o)
			case o.status == http.StatusOK:
				answered++
			case o.wellShed():
				told++
			default:
				t.Errorf("neither answered nor told to ask again: %+v", o)
			}
		}
		t.Logf("%d requests: %d answered, %d told to ask again; it was over after %v", len(outcomes), answered, told, time.Since(last))
		if answered < len(outcomes)/3 || told < len(outcomes)/3 {
			t.Error("this was no overload, or less was answered than can be")
		}
		if shed := e.metric(t, "pillion_webhook_shed_total"); int(shed) < told {
			t.Errorf("%v are counted", shed)
		}
		seconds := int(time.Since(began)/time.Second) + 2                                             // rounded up
		if lines := strings.Count(e.log.String(), `"status":429`); lines == 0 || lines > 11*seconds { // ten per second, and one at the end
			t.Errorf("%d lines in the log", lines)
		}
		if !e.idle() {
			t.Error("something is left")
		}
	})
}

// TestWaiting checks that when the server shuts down, waiting requests get an answer too, and there
// is no work for a client that is gone.
func TestWaiting(t *testing.T) {
	e := newEdge(load(t, sidecar))
	work := &slow{letGo: make(chan struct{}), takes: time.Minute}
	e.Namespaces = work
	lent := webhook.Lent(e.Handler)
	s := serve(t, e, false)
	client, body := overHTTP1(s), reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	url := s.URL + webhook.PathMutate + "?timeout=30s"

	outcomes := make(chan outcome, 11)
	for range cap(outcomes) - 1 {
		go func() { outcomes <- ask(t.Context(), client, url, body) }()
	}
	eventually(t, "one works and the others wait", func() bool { return e.Limiter.Working() == 1 && e.Limiter.Waiting() == 9 })
	if working, waiting := e.metric(t, "pillion_webhook_working"), e.metric(t, "pillion_webhook_waiting"); working != 1 || waiting != 9 {
		t.Errorf("the metrics count %v in progress and %v that wait", working, waiting)
	}
	if n := lent(); n != 1 {
		t.Errorf("%d have memory to work in, and one works", n)
	}
	gone, cancel := context.WithCancel(t.Context())
	go func() { outcomes <- ask(gone, client, url, body) }()
	cancel()

	ended := make(chan error, 1)
	go func() { ended <- s.Config.Shutdown(t.Context()) }()
	eventually(t, "no more are let in", func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(work.letGo)
	answered := 0
	for range cap(outcomes) {
		o := <-outcomes
		switch {
		case o.status == http.StatusOK:
			answered++
		case o.err == nil && !o.wellShed() && o.status != http.StatusServiceUnavailable:
			t.Errorf("%+v", o)
		}
	}
	if err := <-ended; err != nil || answered == 0 {
		t.Errorf("%d answered, then %v", answered, err)
	}
	if !e.idle() {
		t.Errorf("%d work, %d wait", e.Limiter.Working(), e.Limiter.Waiting())
	}
}

// TestLarge checks that only another large request has to wait for a large one.
func TestLarge(t *testing.T) {
	e := newEdge(load(t, sidecar))
	work := &slow{only: "slow", letGo: make(chan struct{}), takes: time.Minute}
	e.Namespaces = work
	s := serve(t, e, false)
	client, url := overHTTP1(s), s.URL+webhook.PathMutate+"?timeout=30s"
	large := []byte(`{"spec":{"containers":[]},"x":"` + strings.Repeat("x", 256<<10) + `"}`)
	outcomes := make(chan outcome, 1)
	go func() { outcomes <- ask(t.Context(), client, url, reviewOf(t, "v1", "CREATE", "slow", large)) }()
	eventually(t, "a large one works", func() bool { return e.Limiter.Working() == 1 })
	if o := ask(t.Context(), client, url, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))); o.status != http.StatusOK {
		t.Errorf("a small one: %+v", o)
	}
	if o := ask(t.Context(), client, url, reviewOf(t, "v1", "CREATE", "shop", large)); !o.wellShed() || o.took < time.Second/2 {
		t.Errorf("another large one: %+v", o)
	}
	close(work.letGo)
	if o := <-outcomes; o.status != http.StatusOK {
		t.Errorf("the first: %+v", o)
	}
}

// raw sends the head of a request with this Content-Length, and a part of the body.
func raw(t *testing.T, s *httptest.Server, length int, body []byte) net.Conn {
	t.Helper()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /mutate?timeout=20s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	if _, err := conn.Write(body); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestRequestMemory checks that the memory of bodies is bounded, whatever length was promised, and
// is returned however a request ends.
func TestRequestMemory(t *testing.T) {
	e := newEdge(load(t, sidecar))
	s := serve(t, e, false)
	client, url := overHTTP1(s), s.URL+webhook.PathMutate+"?timeout=20s"
	big := `{"spec":{"containers":[]},"x":"` + strings.Repeat("x", 3<<20) + `"}`
	small, large := reviewOf(t, "v1", "CREATE", "shop", []byte(pod)), reviewOf(t, "v1", "CREATE", "shop", []byte(big))
	memory := func() float64 { return e.metric(t, "pillion_webhook_memory_bytes") }

	for range 100 {
		raw(t, s, 8<<20, nil)
	}
	if o := ask(t.Context(), client, url, large); o.status != http.StatusOK {
		t.Errorf("while others promise much: %+v", o)
	}
	var held []net.Conn
	for range 3 {
		held = append(held, raw(t, s, len(large), large[:len(large)-1]))
	}
	eventually(t, "the bodies are held", func() bool { return memory() > float64(3*(len(large)+4<<20-64<<10)) }) // including the smaller ones from before
	e.Limiter.SetMemory(int64(memory()) + 1<<20)
	if o := ask(t.Context(), client, url, large); !o.wellShed() {
		t.Errorf("no room for one of 3 MiB: %+v", o)
	}
	if line, _, err := bufio.NewReader(raw(t, s, len(large), nil)).ReadLine(); err != nil || string(line) != "HTTP/1.1 429 Too Many Requests" {
		t.Errorf("no room for what is yet to come: %s %v", line, err)
	}
	if o := ask(t.Context(), client, url, small); o.status != http.StatusOK {
		t.Errorf("room for a small one: %+v", o)
	}
	held[0].Close()
	eventually(t, "there is room again", func() bool { return ask(t.Context(), client, url, large).status == http.StatusOK })

	// One request sends more than it promised. Two others of unknown length become too long together.
	raw(t, s, 10, small)
	e.Limiter.SetMemory(int64(memory()) + 1<<20)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.MultiReader(bytes.NewReader(large)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if response, err := client.Do(r); err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests {
			t.Errorf("in chunks: %s", response.Status)
		}
	}
	s.CloseClientConnections()
	eventually(t, "all is given back", func() bool { return memory() == 0 && e.idle() })
}
