// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestServeSignalsAtStart sends SIGTERM, and SIGHUPs before it, at any moment of a server's start.
// The signal ends the process until it is a server, and from then on it exits with 0. The process
// never stays, half started or waiting.
func TestServeSignalsAtStart(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { select {} }))
	t.Cleanup(silent.CloseClientConnections)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"x","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"x","context":{"cluster":"x"}}],"current-context":"x"}`, silent.URL))
	began := time.Now()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
	took := time.Since(began)
	s.stop(t)
	for name, args := range map[string][]string{
		"standalone":              {"--standalone", "--tls-self-signed"},
		"an API server is silent": {"--tls-self-signed", "--kubeconfig", kubeconfig},
		"waits for a certificate": {"--tls-secret", "pillion-system/pillion-tls", "--tls-host", "x", "--kubeconfig", kubeconfig},
	} {
		t.Run(name, func(t *testing.T) {
			ends := map[string]int{}
			for range 10 {
				s := launchServe(t, append(args, "--templates", "testdata/templates")...)
				<-time.After(rand.N(2 * took))
				_ = s.cmd.Process.Signal(syscall.SIGHUP)
				_ = s.cmd.Process.Signal(syscall.SIGTERM)
				ends[s.end(t)]++
			}
			t.Log(ends)
		})
	}
}

// end returns how the process ended. It checks that this fits the log.
func (s *served) end(t *testing.T) string {
	t.Helper()
	code := s.exit(t)
	status := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch started, served := len(s.lines) > 0, s.saidAny("serving"); {
	case status.Signaled() && !started && (status.Signal() == syscall.SIGTERM || status.Signal() == syscall.SIGHUP):
		return "by the signal"
	case code == 0 && served && s.saidAny("bye"):
		return "after it had served"
	case code == 0 && !served:
		return "before it served"
	}
	t.Errorf("it ended with %v, and said %v", s.cmd.ProcessState, s.lines)
	return "wrong"
}
