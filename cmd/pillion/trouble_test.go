// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

func (s *served) attacker(t *testing.T) *attacker {
	return &attacker{t: t, address: strings.TrimPrefix(s.webhook, "https://"), admin: strings.TrimPrefix(s.admin, "http://")}
}

// TestServeFewFiles checks that if there are too few file descriptors for all clients, waiting
// connections are closed, pods and probes still get answers, and a new certificate is read and
// presented.
func TestServeFewFiles(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	pairFiles(t, certFile, keyFile)
	s := launch(t, []string{"sh", "-c", `ulimit -n 100; exec "$@"`, "sh"},
		"--standalone", "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--templates", "testdata/templates")
	s.findAddresses(t)
	a := s.attacker(t)
	defer a.stop()
	for range 3 {
		for range 100 {
			a.dial("")
		}
		s.innocent(t, s.http1(), reviewBody())
		until(t, "the kubelet is answered", func() (bool, string) {
			status, body := s.get(t, s.admin+"/livez")
			return status == http.StatusOK, body
		})
	}
	second := pairFiles(t, certFile, keyFile)
	until(t, "the new certificate is presented", func() (bool, string) {
		c, _ := a.dial("http/1.1").(*tls.Conn)
		return c != nil && c.ConnectionState().PeerCertificates[0].Equal(second), "the old one is"
	})
}

// TestServeHalfWritten checks certificate files that are written in parts, in any order, or cut off
// by a full disk. They change nothing until both are complete.
func TestServeHalfWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	served := pairFiles(t, certFile, keyFile)
	s := startServe(t, "--standalone", "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--templates", "testdata/templates")
	a := s.attacker(t)
	defer a.stop()
	presents := func() []byte {
		c, _ := a.dial("http/1.1").(*tls.Conn)
		if c == nil {
			t.Fatal("no handshake")
		}
		return c.ConnectionState().PeerCertificates[0].Raw
	}
	for round := range 3 {
		newCert, newKey := filepath.Join(dir, "new.crt"), filepath.Join(dir, "new.key")
		next := pairFiles(t, newCert, newKey)
		files := [][2]string{{newCert, certFile}, {newKey, keyFile}}
		for _, pair := range []int{round % 2, 1 - round%2} {
			text, err := os.ReadFile(files[pair][0])
			must(t, err)
			for cut := 0; cut < len(text); cut += 1 + len(text)/15 {
				write(t, files[pair][1], string(text[:cut]))
				if string(presents()) != string(served.Raw) {
					t.Fatalf("round %d: with %d of %d bytes of %s another certificate is presented", round, cut, len(text), files[pair][1])
				}
			}
			write(t, files[pair][1], string(text))
		}
		until(t, "the new certificate is presented", func() (bool, string) { return string(presents()) == string(next.Raw), "the old one is" })
		served = next
	}
	s.innocent(t, s.client, reviewBody())
}

// TestServeFullLog checks that a log that cannot be written, because the disk is full or its reader
// is gone, delays no caller.
func TestServeFullLog(t *testing.T) {
	t.Parallel()
	works := func(t *testing.T, s *served) {
		t.Helper()
		for range 50 { // lines of the log
			if o := s.send(t, s.client, "nonsense"); o.status != http.StatusBadRequest {
				t.Fatalf("%+v", o)
			}
		}
		s.innocent(t, s.client, reviewBody())
	}
	args := []string{"--standalone", "--tls-self-signed", "--templates", "testdata/templates"}
	t.Run("the disk is full", func(t *testing.T) {
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skip("SKIPPED: ", err)
		}
		webhook, admin := freeAddress(t), freeAddress(t)
		s := launch(t, []string{"sh", "-c", `exec "$@" 2>/dev/full`, "sh"}, append(args, "--listen", webhook, "--admin-listen", admin)...)
		s.webhook, s.admin = "https://"+webhook, "http://"+admin
		s.ready(t, http.StatusOK, "ready")
		works(t, s)
	})
	t.Run("its reader is gone", func(t *testing.T) {
		s := startServe(t, args...)
		must(t, s.stderr.Close())
		works(t, s)
	})
}

// TestServeSignals checks that any number of SIGHUPs at any moment loses no request and ends
// nothing. SIGTERM ends the process with exit code 0 in any state.
func TestServeSignals(t *testing.T) {
	t.Parallel()
	for round := range 4 {
		s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
		var answered atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				client := s.http1()
				defer client.CloseIdleConnections()
				for {
					o := s.send(t, client, reviewBody())
					if o.err != nil && !o.reached {
						return // it has ended
					}
					if o.err != nil || o.status != http.StatusOK {
						t.Errorf("round %d: lost: %+v", round, o)
						return
					}
					answered.Add(1)
				}
			})
		}
		for range 20 + rand.IntN(20) {
			before := answered.Load()
			must(t, s.cmd.Process.Signal(syscall.SIGHUP))
			until(t, "requests are answered", func() (bool, string) { return answered.Load() > before, fmt.Sprint(before) })
		}
		if code := s.stop(t); code != 0 {
			t.Errorf("round %d: exit code %d", round, code)
		}
		wg.Wait()
	}
}

// TestServePipelining checks that requests that arrive together on one connection are answered in
// order, each with its own answer, even if one of them is invalid.
func TestServePipelining(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
	a := s.attacker(t)
	defer a.stop()
	var all strings.Builder
	const times = 200
	for i := range times {
		body := strings.Replace(reviewBody(), `"uid":"1"`, fmt.Sprintf(`"uid":"%d"`, i), 1)
		if i%10 == 9 {
			body = "{"
		}
		fmt.Fprintf(&all, promise+"%s", len(body), body)
	}
	conn := a.dial("http/1.1")
	go func() { _, _ = io.WriteString(conn, all.String()) }()
	from := bufio.NewReader(conn)
	for i := range times {
		response, err := http.ReadResponse(from, nil)
		must(t, err)
		text, err := io.ReadAll(response.Body)
		must(t, err)
		response.Body.Close()
		var review admissionv1.AdmissionReview
		switch {
		case i%10 == 9:
			if response.StatusCode != http.StatusBadRequest {
				t.Errorf("request %d: %s", i, response.Status)
			}
		case json.Unmarshal(text, &review) != nil || review.Response == nil || string(review.Response.UID) != fmt.Sprint(i):
			t.Fatalf("request %d: %s %s", i, response.Status, text)
		}
	}
}
