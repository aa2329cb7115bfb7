// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/server"
)

// http1 is a client that speaks HTTP/1.1, as an API server does to a Service.
func (s *served) http1() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: 25,
	}}
}

// outcome is what became of a request; reached says that it had a connection.
type outcome struct {
	status  int
	close   bool
	reached bool
	took    time.Duration
	err     error
}

func (s *served) send(t *testing.T, client *http.Client, body string) (o outcome) {
	t.Helper()
	began := time.Now()
	defer func() { o.took = time.Since(began) }()
	ctx := httptrace.WithClientTrace(context.WithoutCancel(t.Context()), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { o.reached = true },
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.webhook+"/mutate?timeout=5s", strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		o.err = err
		return o
	}
	defer response.Body.Close()
	_, o.err = io.Copy(io.Discard, response.Body)
	o.status, o.close = response.StatusCode, response.Close
	return o
}

// TestServeEndsUnderLoad checks that the server answers every request that reached it before it
// stops. It stops at once, with the delay of the manifests, or after some time.
func TestServeEndsUnderLoad(t *testing.T) {
	for _, delay := range []string{"0s", "1s"} {
		t.Run(delay, func(t *testing.T) { testEndsUnderLoad(t, delay) })
	}
}

func testEndsUnderLoad(t *testing.T, delay string) {
	t.Helper()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates", "--shutdown-delay", delay)
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			client := s.http1()
			defer client.CloseIdleConnections()
			for {
				switch o := s.send(t, client, reviewBody()); {
				case o.err != nil && !o.reached:
					return // nothing listens any more; the Service has long removed it
				case o.err != nil || o.status != http.StatusOK:
					t.Errorf("lost: %+v: %v", o, o.err)
					return
				}
				answered.Add(1)
			}
		})
	}
	until(t, "there is load", func() (bool, string) { return answered.Load() > 1000, fmt.Sprint(answered.Load()) })
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	wg.Wait()
	if s.saidAny("requests were interrupted") {
		t.Error("requests were interrupted")
	}
}

// TestServeEndsUnused checks that an idle connection delays the server's end only for a moment.
func TestServeEndsUnused(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates", "--shutdown-delay", "0s")
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://"))
	must(t, err)
	defer conn.Close()
	if code := s.stop(t); code != 0 || s.saidAny("requests were interrupted") {
		t.Errorf("exit code %d; the connection was waited for", code)
	}
}

func (s *served) saidAny(msg string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if line["msg"] == msg {
			return true
		}
	}
	return false
}

// TestServeOverload checks a process with one CPU that gets more requests for expensive pods than
// it can process. Each caller gets an answer, or is asked to retry, which costs little. Afterwards
// the process recovers. TestOverload checks the times.
func TestServeOverload(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	path := filepath.Join(t.TempDir(), "costly.yaml")
	write(t, path, "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: costly}\nspec:\n  default: true\n"+
		"  match: {condition: \"!pod.spec.containers.exists(c, pod.spec.containers.exists(d, c.name == 'no'))\"}\n"+
		"  pod: {spec: {containers: [{name: costly, image: costly}]}}\n")
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", path)
	body := strings.Replace(reviewBody(), shopPod, costly(), 1)
	const clients, times = 300, 3
	all := make([]*http.Client, clients)
	for i := range all {
		all[i] = s.http1()
		defer all[i].CloseIdleConnections()
		if o := s.send(t, all[i], "{}"); o.err != nil { // it has its connection
			t.Fatal(o.err)
		}
	}
	began := s.cpuTime(t)
	const alone = 50
	for range alone {
		if o := s.send(t, all[0], body); o.status != http.StatusOK {
			t.Fatalf("without load: %+v", o)
		}
	}
	each := (s.cpuTime(t) - began) / alone
	began = s.cpuTime(t)
	var answered, told atomic.Int64
	var wg sync.WaitGroup
	for _, client := range all {
		wg.Go(func() {
			for range times {
				switch o := s.send(t, client, body); {
				case o.err == nil && o.status == http.StatusOK:
					answered.Add(1)
				case o.err == nil && o.status == http.StatusTooManyRequests:
					told.Add(1)
				default:
					t.Errorf("neither answered nor told to ask again: %+v", o)
				}
			}
		})
	}
	wg.Wait()
	spent := s.cpuTime(t) - began
	t.Logf("%v of CPU each; %d answered and %d told to ask again for %v", each, answered.Load(), told.Load(), spent)
	if answered.Load() == 0 || told.Load() == 0 {
		t.Error("this was no overload, or nothing but")
	}
	if most := 3*each*time.Duration(answered.Load()) + 5*time.Millisecond*clients*times; spent > most {
		t.Errorf("more than %v is spent", most)
	}
	s.innocent(t, all[0], reviewBody())
}

// costly is a pod for which the template of that name takes a while.
func costly() string {
	var all []string
	for i := range 150 {
		all = append(all, fmt.Sprintf(`{"name":"a%d"}`, i))
	}
	return `{"spec":{"containers":[` + strings.Join(all, ",") + `]}}`
}

// TestServeConnections checks that the number of open connections is limited.
func TestServeConnections(t *testing.T) {
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
	var kept []*http.Client
	defer func() {
		for _, client := range kept {
			client.CloseIdleConnections()
		}
	}()
	for range server.MaxConnections / 2 {
		client := s.http1()
		if o := s.send(t, client, "{}"); o.err != nil || o.close {
			t.Fatalf("connection %d: %+v", len(kept), o)
		}
		kept = append(kept, client)
	}
	if o := s.send(t, s.http1(), "{}"); o.err != nil || !o.close {
		t.Fatalf("one too many: %+v", o)
	}
	closed := 0
	until(t, "there is room again", func() (bool, string) {
		kept[closed].CloseIdleConnections()
		closed++
		client := s.http1()
		o := s.send(t, client, "{}")
		kept = append(kept, client)
		return !o.close, fmt.Sprint(o)
	})
}

// TestServeSilentConnections checks that clients that connect often and send nothing do not keep
// out other clients.
func TestServeSilentConnections(t *testing.T) {
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
	for range server.MaxConnections + 100 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://"))
		must(t, err)
		defer conn.Close()
	}
	if o := s.send(t, s.http1(), "{}"); o.err != nil {
		t.Errorf("no answer: %+v", o)
	}
}

// TestReconfigureUninjected checks that the mode for pods that were not injected can change while
// serve runs.
func TestReconfigureUninjected(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pillion.yaml")
	const always = "standalone: true\ntls-self-signed: true\ntemplates: [testdata/templates]\n"
	write(t, file, always)
	s := startServe(t, "--config", file)
	for _, row := range []struct{ text, want string }{
		{always, `"allowed":false`},
		{always + "uninjected-pods: Warn\n", `"allowed":true`},
		{always + "uninjected-pods: Deny\n", `"allowed":false`},
	} {
		write(t, file, row.text)
		until(t, "the answer has "+row.want, func() (bool, string) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhook+"/validate", strings.NewReader(reviewBody()))
			must(t, err)
			r.Header.Set("Content-Type", "application/json")
			response, err := s.client.Do(r)
			must(t, err)
			defer response.Body.Close()
			answer, err := io.ReadAll(response.Body)
			must(t, err)
			return strings.Contains(string(answer), row.want), string(answer)
		})
	}
	write(t, file, always+"uninjected-pods: Never\n")
	s.ready(t, http.StatusOK, "uninjected-pods: must be one of Deny, Warn, not")
}

// TestReconfigureMemory checks that the memory limit can change while serve runs.
func TestReconfigureMemory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pillion.yaml")
	const always = "standalone: true\ntls-self-signed: true\ntemplates: [testdata/templates]\n"
	write(t, file, always)
	s := startServe(t, "--config", file, "--memory-limit=1G")
	for _, row := range []struct{ text, want string }{
		{always, "6.7108864e+07"},
		{always + "max-request-memory: 128Mi\n", "1.34217728e+08"},
	} {
		write(t, file, row.text)
		until(t, "the bound is "+row.want, func() (bool, string) {
			_, body := s.get(t, s.admin+"/metrics")
			return strings.Contains(body, "\npillion_webhook_memory_limit_bytes "+row.want+"\n"), "it is not"
		})
	}
	if _, body := s.get(t, s.admin+"/metrics"); !strings.Contains(body, "\ngo_gc_gomemlimit_bytes 6.66666666e+08\n") {
		t.Error("--memory-limit is not told to the collector")
	}
	write(t, file, always+"max-request-memory: 32Mi\n")
	s.ready(t, http.StatusOK, "--max-request-memory must be at least 64Mi")
}
