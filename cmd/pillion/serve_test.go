// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// served is a running pillion serve.
type served struct {
	cmd            *exec.Cmd
	stderr         io.Closer
	webhook, admin string
	client         *http.Client

	mu    sync.Mutex
	lines []map[string]any // of its log
	ended chan struct{}    // its log ended, and so did it
}

// startServe runs pillion serve as its own process, on free ports.
func startServe(t *testing.T, args ...string) *served {
	t.Helper()
	s := launchServe(t, args...)
	s.findAddresses(t)
	return s
}

// launchServe is startServe for one that may have to wait before it serves.
func launchServe(t *testing.T, args ...string) *served {
	t.Helper()
	return launch(t, nil, args...)
}

// launch is launchServe for one that runs under another command, such as a shell that sets limits.
func launch(t *testing.T, under []string, args ...string) *served {
	t.Helper()
	s := &served{ended: make(chan struct{}), client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}}
	all := slices.Concat(under, strings.Fields("pillion serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --shutdown-delay 0s"), args)
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), all[0], all[1:]...)
	stderr, err := s.cmd.StderrPipe()
	must(t, err)
	s.stderr = stderr
	must(t, s.cmd.Start())
	go s.read(stderr)
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		_ = s.cmd.Wait()
		s.client.CloseIdleConnections()
		if t.Failed() {
			t.Logf("the log: %v", s.lines)
		}
	})
	return s
}

func (s *served) findAddresses(t *testing.T) {
	t.Helper()
	line := s.logged(t, "serving")
	s.webhook, s.admin = "https://"+line["webhook"].(string), "http://"+line["admin"].(string)
}

func (s *served) read(log io.Reader) {
	defer close(s.ended)
	scanner := bufio.NewScanner(log)
	for scanner.Scan() {
		line := map[string]any{}
		if json.Unmarshal(scanner.Bytes(), &line) != nil {
			line["msg"] = scanner.Text()
		}
		s.mu.Lock()
		s.lines = append(s.lines, line)
		s.mu.Unlock()
	}
}

// logged waits for a line of the log.
func (s *served) logged(t *testing.T, msg string) (found map[string]any) {
	t.Helper()
	until(t, "it logs "+msg, func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, line := range s.lines {
			if line["msg"] == msg {
				found = line
			}
		}
		return found != nil, fmt.Sprint(s.lines)
	})
	return found
}

// count is how many lines of the log have that message.
func (s *served) count(msg string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if line["msg"] == msg {
			n++
		}
	}
	return n
}

// stop asks the process to end and gives its exit code.
func (s *served) stop(t *testing.T) int {
	t.Helper()
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	return s.exit(t)
}

func (s *served) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func (s *served) get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	response, err := s.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}

const shopPod = `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"nginx"}]}}`

func reviewBody() string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",` +
		`"namespace":"shop","resource":{"group":"","version":"v1","resource":"pods"},"object":` + shopPod + `}}`
}

// mutate sends a pod to the mutating webhook.
func (s *served) mutate(t *testing.T) *admissionv1.AdmissionResponse {
	t.Helper()
	answer, _ := s.exchange(t)
	return answer
}

// how is what the tests want to know of an answer's transport.
type how struct {
	proto string
	close bool
}

func (s *served) exchange(t *testing.T) (*admissionv1.AdmissionResponse, how) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhook+"/mutate?timeout=10s", strings.NewReader(reviewBody()))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	must(t, err)
	defer response.Body.Close()
	return answered(t, response), how{response.Proto, response.Close}
}

func answered(t *testing.T, response *http.Response) *admissionv1.AdmissionResponse {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	var review admissionv1.AdmissionReview
	if response.StatusCode != http.StatusOK || json.Unmarshal(text, &review) != nil || review.Response == nil {
		t.Fatalf("%s: %s", response.Status, text)
	}
	return review.Response
}

// ready waits until /readyz?verbose has the status and the text.
func (s *served) ready(t *testing.T, status int, text string) {
	t.Helper()
	until(t, fmt.Sprintf("/readyz says %d %q", status, text), func() (bool, string) {
		got, body := s.get(t, s.admin+"/readyz?verbose")
		return got == status && strings.Contains(body, text), fmt.Sprint(got, " ", body)
	})
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
	s.ready(t, 200, "[+]templates ok: revision ")
	for path, want := range map[string]string{"/livez": "ok", "/readyz": "ok", "/metrics": "pillion_templates{"} {
		if status, body := s.get(t, s.admin+path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if r := s.mutate(t); len(r.Patch) == 0 {
		t.Error("the webhook does not inject")
	}
	if _, body := s.get(t, s.admin+"/metrics"); !strings.Contains(body, `pillion_decisions_total{code="injected",template="log-agent"} 1`) {
		t.Errorf("the decision is not counted:\n%s", body)
	}
	for _, url := range []string{s.webhook + "/metrics", s.webhook + "/readyz", s.admin + "/mutate"} {
		if status, _ := s.get(t, url); status != http.StatusNotFound {
			t.Errorf("%s: %d", url, status)
		}
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if c, err := (&tls.Dialer{Config: old}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://")); err == nil {
		c.Close()
		t.Error("TLS 1.1 is spoken")
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestServeProtocols checks both protocols: the API server speaks HTTP/1.1 to a Service, and HTTP/2
// to localhost.
func TestServeProtocols(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
	for _, http2 := range []bool{false, true} {
		s.client.Transport = &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: http2,
		}
		if r, how := s.exchange(t); len(r.Patch) == 0 || (how.proto == "HTTP/2.0") != http2 {
			t.Errorf("HTTP/2 %v: %s", http2, how.proto)
		}
		s.client.CloseIdleConnections()
	}
}

func TestServeReload(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "templates")
	mount := func(version string, texts ...string) {
		for i, text := range texts {
			write(t, filepath.Join(folder, version, fmt.Sprintf("%d.yaml", i)), text)
		}
		old, _ := os.Readlink(filepath.Join(folder, "..data"))
		must(t, os.Symlink(version, filepath.Join(folder, "..new")))
		must(t, os.Rename(filepath.Join(folder, "..new"), filepath.Join(folder, "..data")))
		for i := range texts {
			_ = os.Symlink(fmt.Sprintf("..data/%d.yaml", i), filepath.Join(folder, fmt.Sprintf("%d.yaml", i)))
		}
		if old != "" {
			must(t, os.RemoveAll(filepath.Join(folder, old)))
		}
	}
	injects := func(s *served, names ...string) {
		t.Helper()
		until(t, fmt.Sprint(names, " are injected"), func() (bool, string) {
			r := s.mutate(t)
			ok := len(r.AuditAnnotations) == len(names)
			for _, name := range names {
				ok = ok && strings.HasPrefix(r.AuditAnnotations[name], "injected")
			}
			return ok, fmt.Sprint(r.AuditAnnotations)
		})
	}
	must(t, os.MkdirAll(folder, 0o755))
	mount("..1", template("one"))
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", folder)
	injects(s, "one")

	mount("..2", template("one"), template("two"))
	injects(s, "one", "two")

	// A bad set changes nothing, and says so everywhere.
	mount("..3", template("three"), "kind: Nonsense\n")
	s.ready(t, 200, "a newer set is rejected since ")
	s.ready(t, 200, "1.yaml:1: ")
	s.logged(t, "the new templates are invalid, the last valid ones stay in use")
	injects(s, "one", "two")
	if _, body := s.get(t, s.admin+"/metrics"); strings.Contains(body, "pillion_template_problems 0") ||
		!strings.Contains(body, `pillion_template_loads_total{result="rejected"} 1`) {
		t.Errorf("the problem is not counted:\n%s", body)
	}

	// An editor renames its file over a good one; a template goes.
	must(t, os.Remove(filepath.Join(folder, "1.yaml")))
	write(t, filepath.Join(folder, ".0.yaml.swp"), template("four"))
	must(t, os.Rename(filepath.Join(folder, ".0.yaml.swp"), filepath.Join(folder, "0.yaml")))
	injects(s, "four")
	s.logged(t, "the templates are valid again")
	if _, body := s.get(t, s.admin+"/readyz?verbose"); strings.Contains(body, "rejected") {
		t.Errorf("a problem is left over:\n%s", body)
	}
	if _, body := s.get(t, s.admin+"/metrics"); !strings.Contains(body, "pillion_template_problems 0") || strings.Count(body, "\npillion_templates{") != 1 {
		t.Errorf("a problem is still counted, or an old set:\n%s", body)
	}
}

// TestServeDrains checks that after SIGTERM, Pillion answers requests that have begun, and requests
// that arrive before the cluster has removed the endpoint.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates", "--shutdown-delay", "3s")
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://"))
	must(t, err)
	defer conn.Close()
	body := reviewBody()
	fmt.Fprintf(conn, "POST /mutate?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:20])

	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.ready(t, http.StatusServiceUnavailable, "[-]shutdown failed: shutting down")
	if status, _ := s.get(t, s.admin+"/livez"); status != 200 {
		t.Error("draining is not dying")
	}
	if r, how := s.exchange(t); len(r.Patch) == 0 || !how.close {
		t.Errorf("while draining: connection to be closed by the caller: %v", how.close)
	}
	until(t, "new connections are refused", func() (bool, string) {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://"))
		if err == nil {
			c.Close()
		}
		return err != nil, "accepted"
	})
	if status, _ := s.get(t, s.admin+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d while a request is on its way", status)
	}
	_, err = io.WriteString(conn, body[20:])
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer response.Body.Close()
	if r := answered(t, response); len(r.Patch) == 0 {
		t.Error("the request on its way is not answered as ever")
	}
	if code := s.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
