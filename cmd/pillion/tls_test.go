// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/certs"
)

// pairFiles writes a new certificate for localhost and gives it.
func pairFiles(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	c, err := certs.SelfSigned("localhost")
	must(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(t, err)
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	return c.Leaf
}

func TestServeCertificate(t *testing.T) {
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	first := pairFiles(t, certFile, keyFile)
	s := startServe(t, "--standalone", "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--templates", "testdata/templates")
	presents := func(want *x509.Certificate) bool {
		t.Helper()
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.webhook, "https://"))
		must(t, err)
		defer c.Close()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].Equal(want)
	}
	if !presents(first) {
		t.Error("another certificate is presented")
	}
	second := pairFiles(t, certFile, keyFile)
	until(t, "the new certificate is presented", func() (bool, string) { return presents(second), "the old one is" })
	write(t, certFile, "nonsense")
	s.logged(t, "the certificate cannot be reloaded, the last good one stays in use")
	if !presents(second) {
		t.Error("the last good certificate is not presented")
	}
	s.ready(t, 200, "[+]certificate ok: valid until ")
	s.ready(t, 200, "a new one is refused since ")
	if _, body := s.get(t, s.admin+"/metrics"); !strings.Contains(body, `pillion_certificate_refused_total{reason="no_pair"}`) {
		t.Errorf("the refusal is not counted:\n%s", body)
	}
	if r := s.mutate(t); len(r.Patch) == 0 {
		t.Error("the webhook does not inject")
	}
}
