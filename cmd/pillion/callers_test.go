// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// call asks the mutating webhook with an Authorization header, and gives the status.
func (s *served) call(t *testing.T, authorization string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhook+"/mutate?timeout=10s", strings.NewReader(reviewBody()))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	response, err := s.client.Do(r)
	must(t, err)
	defer response.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	must(t, err)
	return response.StatusCode, text.String()
}

// answers waits until the webhook answers with the status.
func (s *served) answers(t *testing.T, authorization string, status int) {
	t.Helper()
	until(t, "the webhook answers "+http.StatusText(status), func() (bool, string) {
		got, body := s.call(t, authorization)
		return got == status, body
	})
}

func TestServeCallers(t *testing.T) {
	t.Parallel()
	tokens, users := filepath.Join(t.TempDir(), "tokens"), filepath.Join(t.TempDir(), "users")
	write(t, tokens, "first-token\n")
	write(t, users, "apiserver:secret\n")
	const basic, right = "Basic YXBpc2VydmVyOnNlY3JldA==", "Bearer first-token"
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates",
		"--caller-authentication", "required", "--caller-token-file", tokens, "--caller-basic-auth-file", users)
	s.ready(t, 200, "[+]callers ok: authentication is required\n")
	for authorization, want := range map[string]int{
		right: 200, basic: 200, "": 401, "Bearer second-token": 401, "Basic YTpi": 401,
		"Bearer " + strings.Repeat("x", 12<<10): 401, "Bearer " + strings.Repeat("x", 80<<10): http.StatusRequestHeaderFieldsTooLarge,
	} {
		if got, body := s.call(t, authorization); got != want {
			t.Errorf("%.20s: %d %s, want %d", authorization, got, body, want)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if status, _ := s.get(t, s.admin+path); status != 200 {
			t.Errorf("%s asks who calls: %d", path, status)
		}
	}

	// The next token is valid beside the first.
	write(t, tokens, "second-token\nfirst-token\n")
	s.answers(t, "Bearer second-token", 200)
	s.answers(t, right, 200)

	// An empty file accepts no more callers than the last valid file did.
	write(t, tokens, "")
	s.ready(t, 200, "authentication is required; the last valid credentials are in use: "+tokens+": it is empty")
	s.logged(t, "caller credentials cannot be reloaded, the last valid ones stay in use")
	s.answers(t, right, 200)
	s.answers(t, "", 401)
	if _, body := s.get(t, s.admin+"/metrics"); !strings.Contains(body, "pillion_caller_credential_problems 1") ||
		!strings.Contains(body, `pillion_callers_rejected_total{reason="missing"}`) || !strings.Contains(body, `pillion_callers_accepted_total{way="password"} 1`) {
		t.Errorf("it is not counted:\n%s", body)
	}
	// The same holds for a file that is missing. Pillion still follows the other file.
	must(t, os.Remove(tokens))
	s.ready(t, 200, "no such file")
	write(t, users, "apiserver:other\n")
	s.answers(t, basic, 401)
	s.answers(t, right, 200)

	write(t, tokens, "second-token\n")
	s.answers(t, right, 401)
	s.answers(t, "Bearer second-token", 200)
	s.ready(t, 200, "[+]callers ok: authentication is required\n")
	s.logged(t, "caller credentials are valid again")
	for _, line := range s.lines {
		text, err := json.Marshal(line)
		must(t, err)
		for _, secret := range []string{"first-token", "second-token", "secret", "YXBpc2VydmVyOnNlY3JldA"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("the log holds %q: %s", secret, text)
			}
		}
	}
}

func TestServeCallersOptional(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens")
	write(t, tokens, "first\n")
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates",
		"--caller-authentication", "optional", "--caller-token-file", tokens)
	for authorization, want := range map[string]int{"Bearer first": 200, "": 200, "Bearer second": 401} {
		if got, body := s.call(t, authorization); got != want {
			t.Errorf("%s: %d %s, want %d", authorization, got, body, want)
		}
	}
}

// signedBy writes the certificate of a new CA, and gives one of it for "apiserver".
func signedBy(t *testing.T, caFile string) tls.Certificate {
	t.Helper()
	make := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		if signer == nil {
			signer = key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		must(t, err)
		return der, key
	}
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, caKey := make(ca, ca, nil)
	write(t, caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})))
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: "apiserver"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, key := make(leaf, ca, caKey)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestServeCallersCertificate checks that the current CAs decide about a client certificate on an
// existing connection.
func TestServeCallersCertificate(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		caFile, tokens := filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "tokens")
		write(t, tokens, "first\n")
		first := signedBy(t, caFile)
		s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates", "--caller-authentication", "required",
			"--caller-ca-file", caFile, "--caller-name", "other", "--caller-name", "apiserver", "--caller-token-file", tokens)
		use := func(certificates ...tls.Certificate) {
			s.client.CloseIdleConnections()
			s.client.Transport = &http.Transport{
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: certificates},
				ForceAttemptHTTP2: http2,
			}
		}
		use()
		s.answers(t, "", 401)
		s.answers(t, "Bearer first", 200)
		use(signedBy(t, filepath.Join(t.TempDir(), "another")))
		s.answers(t, "", 401)
		s.answers(t, "Bearer first", 200)
		use(first)
		s.answers(t, "", 200)

		second := signedBy(t, caFile)
		s.answers(t, "", 401)
		use(second)
		s.answers(t, "", 200)
		write(t, caFile, "nonsense")
		s.ready(t, 200, caFile+": it has no CA certificate")
		s.answers(t, "", 200)
		signedBy(t, caFile)
		s.answers(t, "", 401)
	}
}
