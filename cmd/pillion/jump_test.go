// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/server"
	"github.com/pillion-dev/pillion/inject/testing/size"
)

// The wall clock of a jumping Pillion is off by a given duration. Except for [time.Now], it is the program that is
// shipped.
const (
	jumpedTime = `package time

import "sync/atomic"

var Jumped atomic.Int64

func jumpedNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	return sec + Jumped.Load(), nsec, mono
}
`
	jumpedMain = `package main

import (
	"fmt"
	"os"
	"time"
)

func init() {
	go func() {
		told, err := os.Open(os.Getenv("JUMPS"))
		for n := int64(0); err == nil; time.Jumped.Store(n) {
			_, err = fmt.Fscanln(told, &n)
		}
		panic(err)
	}()
}
`
)

// jumping is a server whose clock can be set.
type jumping struct {
	*served
	jumps *os.File
}

func startJumping(t *testing.T, args ...string) *jumping {
	t.Helper()
	size.SkipUnlessFull(t, "it compiles the package time and all that depends on it, which takes minutes the first time")
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: there is no named pipe")
	}
	pipe := filepath.Join(t.TempDir(), "jumps")
	must(t, syscall.Mkfifo(pipe, 0o600))
	run := fmt.Sprintf(`shift; JUMPS=%s exec %s "$@"`, pipe, buildJumping(t))
	j := &jumping{served: launch(t, []string{"sh", "-c", run, "sh"}, args...)}
	j.findAddresses(t)
	var err error
	j.jumps, err = os.OpenFile(pipe, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { j.jumps.Close() })
	return j
}

// buildJumping builds with two files more and a changed one, of which Go's cache knows after the first time.
func buildJumping(t *testing.T) (program string) {
	t.Helper()
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	must(t, err)
	std, dir := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time"), t.TempDir()
	own, err := os.Getwd()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(std, "time.go"))
	must(t, err)
	changed := bytes.ReplaceAll(text, []byte(":= runtimeNow()\n"), []byte(":= jumpedNow()\n"))
	if bytes.Equal(text, changed) {
		t.Fatal("time.Now no longer calls runtimeNow; look where it takes the time from")
	}
	overlay := map[string]string{}
	for path, text := range map[string]string{
		filepath.Join(std, "time.go"):   string(changed),
		filepath.Join(std, "jumped.go"): jumpedTime,
		filepath.Join(own, "jumped.go"): jumpedMain,
	} {
		overlay[path] = filepath.Join(dir, fmt.Sprint(len(overlay), ".go"))
		write(t, overlay[path], text)
	}
	names, err := json.Marshal(map[string]any{"Replace": overlay})
	must(t, err)
	write(t, filepath.Join(dir, "overlay.json"), string(names))
	program = filepath.Join(dir, "pillion")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// jump sets the clock, and returns when it shows: in the Date of an answer.
func (j *jumping) jump(t *testing.T, by time.Duration) {
	t.Helper()
	_, err := fmt.Fprintln(j.jumps, int64(by.Seconds()))
	must(t, err)
	until(t, fmt.Sprintf("its clock is off by %v", by), func() (bool, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, j.admin+"/livez", nil)
		must(t, err)
		response, err := j.client.Do(r)
		must(t, err)
		response.Body.Close()
		date, err := http.ParseTime(response.Header.Get("Date"))
		must(t, err)
		off := time.Until(date)
		return (off - by).Abs() < 20*time.Second, off.String()
	})
}

const year = 365 * 24 * time.Hour

// TestServeClockJumps checks that if the wall clock jumps under load, no request is lost or
// answered differently, no connection is closed, deadlines stay the same, and the certificate and
// readiness stay.
func TestServeClockJumps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile, file := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "templates", "t.yaml")
	leaf := pairFiles(t, certFile, keyFile)
	write(t, file, agentTemplateOf(0))
	j := startJumping(t, "--standalone", "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--templates", file)
	load := j.startLoad(t)
	slow := j.half(t, "30s")
	for i, by := range []time.Duration{time.Second, -time.Second, time.Minute, -time.Hour, 6 * time.Minute, 24 * time.Hour, -24 * time.Hour, 30 * year, -30 * year, 0} {
		before := load.answered.Load()
		j.jump(t, by)
		until(t, "requests are answered", func() (bool, string) { return load.answered.Load() > before+50, fmt.Sprint(before) })
		j.ready(t, http.StatusOK, "[+]certificate ok: valid until ")
		if !j.presents(t).Equal(leaf) {
			t.Errorf("%v: another certificate is presented", by)
		}
		// A renewal while the clock is wrong: the pair is valid by any clock that is right.
		leaf = pairFiles(t, certFile, keyFile)
		until(t, "the new certificate is presented", func() (bool, string) { return j.presents(t).Equal(leaf), "the old one is" })
		j.supersedes(t, file, i, by)
	}
	if status := slow.end(t); status != http.StatusOK {
		t.Errorf("a request that has 30 s is answered with %d", status)
	}
	for _, by := range []time.Duration{-year, year} {
		hurried := j.half(t, "1s")
		j.jump(t, by)
		if status := hurried.status(t); status != http.StatusServiceUnavailable {
			t.Errorf("%v: a request whose second is over is answered with %d", by, status)
		}
	}
	load.stop()
	if code := j.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestServeCallersClockJumps checks that a jump of the clock does not make the valid certificate of
// an API server invalid.
func TestServeCallersClockJumps(t *testing.T) {
	t.Parallel()
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	good := signedBy(t, caFile)
	j := startJumping(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates",
		"--caller-authentication", "required", "--caller-ca-file", caFile, "--caller-name", "apiserver")
	j.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{good}}}
	for _, by := range []time.Duration{0, 2 * time.Hour, -time.Hour, 30 * year, -30 * year} {
		j.jump(t, by)
		if status, answer := j.call(t, ""); status != http.StatusOK {
			t.Errorf("%v: it is answered with %d: %s", by, status, answer)
		}
	}
}

func agentTemplateOf(i int) string {
	return fmt.Sprintf("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: agent}\nspec:\n  required: true\n"+
		"  pod: {spec: {containers: [{name: agent, image: \"agent:%d\"}]}}\n  validate: {protect: [image]}\n", i)
}

// supersedes the templates: for five minutes, which no clock on a wall makes shorter, what the last ones injected is right.
func (j *jumping) supersedes(t *testing.T, file string, i int, by time.Duration) {
	t.Helper()
	allowed := func(i int) bool {
		pod := fmt.Sprintf(`{"metadata":{"annotations":{"agent.pillion.dev/injected":"x"}},"spec":{"containers":[{"name":"web","image":"web"},{"name":"agent","image":"agent:%d"}]}}`, i)
		status, answer := j.post(t, "/validate?timeout=10s", strings.Replace(reviewBody(), shopPod, pod, 1))
		return status == http.StatusOK && strings.Contains(answer, `"allowed":true`)
	}
	write(t, file, agentTemplateOf(i+1))
	until(t, "the next templates are in use", func() (bool, string) {
		patch := string(j.mutate(t).Patch)
		return strings.Contains(patch, fmt.Sprintf(`"agent:%d"`, i+1)), patch
	})
	if last, never := allowed(i), allowed(-1); !last || never {
		t.Errorf("%v: what the last templates injected is allowed: %t; what none did: %t", by, last, never)
	}
}

func (s *served) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhook+path, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}

func (s *served) presents(t *testing.T) *x509.Certificate {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://"))
	must(t, err)
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// half is a request whose first half was sent.
type half struct {
	net.Conn
	rest string
}

func (s *served) half(t *testing.T, timeout string) half {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://"))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	body := reviewBody()
	_, err = fmt.Fprintf(c, strings.Replace(promise, "30s", timeout, 1)+"%s", len(body), body[:20])
	must(t, err)
	return half{c, body[20:]}
}

func (h half) end(t *testing.T) (status int) {
	t.Helper()
	_, err := io.WriteString(h, h.rest)
	must(t, err)
	return h.status(t)
}

func (h half) status(t *testing.T) int {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(h), nil)
	must(t, err)
	response.Body.Close()
	return response.StatusCode
}

// innocents send pods all the time.
type innocents struct {
	answered atomic.Int64
	over     atomic.Bool
	wg       sync.WaitGroup
}

func (s *served) startLoad(t *testing.T) *innocents {
	t.Helper()
	l, began := &innocents{}, time.Now()
	for range 4 {
		l.wg.Go(func() {
			client := s.http1()
			defer client.CloseIdleConnections()
			for !l.over.Load() {
				if o := s.send(t, client, reviewBody()); o.err != nil || o.status != http.StatusOK || o.close && time.Since(began) < server.ConnectionAge {
					t.Errorf("lost: %+v", o)
					return
				}
				l.answered.Add(1)
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *innocents) stop() {
	l.over.Store(true)
	l.wg.Wait()
}
