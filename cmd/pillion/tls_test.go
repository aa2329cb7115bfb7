// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
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
	t.Parallel()
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
	s.logged(t, "the certificate cannot be reloaded, the last valid one stays in use")
	if !presents(second) {
		t.Error("the last good certificate is not presented")
	}
	s.ready(t, 200, "[+]certificate ok: valid until ")
	s.ready(t, 200, "a new one is rejected since ")
	if _, body := s.get(t, s.admin+"/metrics"); !strings.Contains(body, `pillion_certificate_rejected_total{reason="no_pair"}`) {
		t.Errorf("the rejection is not counted:\n%s", body)
	}
	if r := s.mutate(t); len(r.Patch) == 0 {
		t.Error("the webhook does not inject")
	}
}

// secretAPI is as much of a Kubernetes API as has the Secret of --tls-secret. It answers once it is released.
func secretAPI(t *testing.T, release <-chan struct{}) (kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	pairFiles(t, certFile, keyFile)
	data := map[string]string{}
	for _, file := range []string{certFile, keyFile} {
		text, err := os.ReadFile(file)
		must(t, err)
		data[filepath.Base(file)] = base64.StdEncoding.EncodeToString(text)
	}
	secret := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": data,
		"metadata": map[string]any{"name": "pillion-tls", "namespace": "pillion-system", "resourceVersion": "1"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		if strings.HasPrefix(r.URL.Path, "/apis/pillion.dev/") { // there are no kinds of templates
			http.NotFound(w, r)
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/secrets") {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		if r.URL.Query().Get("watch") == "" {
			_ = encoder.Encode(map[string]any{"apiVersion": "v1", "kind": "SecretList", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{secret}})
			return
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			_ = encoder.Encode(watchEvent{"ADDED", secret})
			_ = encoder.Encode(watchEvent{"BOOKMARK", map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
				"resourceVersion": "1", "annotations": map[string]string{"k8s.io/initial-events-end": "true"},
			}}})
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	kubeconfig = filepath.Join(dir, "kubeconfig")
	write(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x}}]\n"+
		"clusters: [{name: x, cluster: {server: '"+server.URL+"'}}]\n")
	return kubeconfig
}

// freeAddress returns an address at which serve can listen later. On Linux, the host is one of the many loopback addresses, at random,
// so no other test gets the port in the meantime.
func freeAddress(t *testing.T) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // others have only this one
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}

// TestServeAcceptsWithCertificate checks a replica that gets its certificate from the API server,
// at its start or restart. It accepts no connection before it has the certificate. Then every
// connection gets the certificate.
func TestServeAcceptsWithCertificate(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	address, admin := freeAddress(t), freeAddress(t)
	s := launchServe(t, "--kubeconfig", secretAPI(t, release), "--tls-secret", "pillion-system/pillion-tls",
		"--templates", "testdata/templates", "--listen", address, "--admin-listen", admin)
	s.admin = "http://" + admin
	dial := func() (accepted bool, err error) {
		raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return false, err
		}
		defer raw.Close()
		return true, tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
	}
	s.ready(t, http.StatusServiceUnavailable, "[-]webhooks failed: connections will be accepted when there is a certificate")
	if status, body := s.get(t, s.admin+"/livez"); status != http.StatusOK {
		t.Errorf("without a certificate, /livez says %d %s", status, body)
	}
	for range 10 {
		if accepted, err := dial(); accepted {
			t.Fatalf("a connection is accepted before there is a certificate: %v", err)
		}
	}
	close(release)
	until(t, "a connection is accepted", func() (bool, string) {
		accepted, err := dial()
		if accepted && err != nil {
			t.Fatalf("a connection is accepted before there is a certificate: %v", err)
		}
		return accepted, "none is"
	})
	s.ready(t, http.StatusServiceUnavailable, "[+]webhooks ok: connections are accepted")
}

// TestServeEndsWithoutCertificate checks that a replica that never got a certificate stops at once,
// because it has nothing to drain.
func TestServeEndsWithoutCertificate(t *testing.T) {
	t.Parallel()
	admin := freeAddress(t)
	s := launchServe(t, "--kubeconfig", secretAPI(t, nil), "--tls-secret", "pillion-system/pillion-tls",
		"--templates", "testdata/templates", "--admin-listen", admin)
	s.admin = "http://" + admin
	s.ready(t, http.StatusServiceUnavailable, "[-]webhooks failed: ")
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
