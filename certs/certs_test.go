// SPDX-License-Identifier: Apache-2.0

package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/certs"
)

// pair makes a new certificate as PEM.
func pair(t *testing.T) (cert, key []byte) {
	t.Helper()
	c, err := certs.SelfSigned("localhost")
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(path, data, 0o600))
}

// serves says whether what f gives for a handshake is the certificate in pem.
func serves(t *testing.T, f *certs.Files, cert []byte) bool {
	t.Helper()
	got, err := f.GetCertificate(nil)
	must(t, err)
	block, _ := pem.Decode(cert)
	return bytes.Equal(got.Certificate[0], block.Bytes)
}

func TestFilesFollow(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	firstCert, firstKey := pair(t)
	write(t, certFile, firstCert)
	write(t, keyFile, firstKey)
	var log bytes.Buffer
	f, err := certs.NewFiles(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	if !serves(t, f, firstCert) {
		t.Fatal("the first pair is not served")
	}

	secondCert, secondKey := pair(t)
	bad := []struct {
		what      string
		cert, key []byte
	}{
		{"the certificate is half written", secondCert[:len(secondCert)/2], firstKey},
		{"the key is still the old one", secondCert, firstKey},
		{"the key is half written", secondCert, secondKey[:len(secondKey)/2]},
		{"the key is empty", secondCert, nil},
		{"both are something else", []byte("hello"), []byte("hello")},
	}
	for _, b := range bad {
		write(t, certFile, b.cert)
		write(t, keyFile, b.key)
		log.Reset()
		for range 2 {
			if !serves(t, f, firstCert) {
				t.Errorf("%s: the last good pair is not served", b.what)
			}
		}
		if f.Problem() == nil {
			t.Errorf("%s: no problem is told", b.what)
		}
		if n := strings.Count(log.String(), "last good one stays"); n > 1 {
			t.Errorf("%s: logged %d times for two handshakes", b.what, n)
		}
	}
	must(t, os.Remove(keyFile))
	if !serves(t, f, firstCert) {
		t.Error("without a key file the last good pair is not served")
	}

	write(t, certFile, secondCert)
	write(t, keyFile, secondKey)
	if !serves(t, f, secondCert) {
		t.Error("the new pair is not served")
	}
	if err := f.Problem(); err != nil {
		t.Errorf("a problem is left over: %v", err)
	}
}

func TestFilesFirstPairMustBeGood(t *testing.T) {
	dir := t.TempDir()
	cert, _ := pair(t)
	_, key := pair(t)
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := certs.NewFiles(certFile, keyFile, slog.Default()); err == nil {
		t.Error("no files, no error")
	}
	write(t, certFile, cert)
	write(t, keyFile, key)
	if _, err := certs.NewFiles(certFile, keyFile, slog.Default()); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("another key: %v", err)
	}
}

func TestFilesConcurrently(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cert, key := pair(t)
	write(t, certFile, cert)
	write(t, keyFile, key)
	f, err := certs.NewFiles(certFile, keyFile, slog.New(slog.DiscardHandler))
	must(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if c, err := f.GetCertificate(nil); c == nil || err != nil {
					t.Error("no certificate", err)
				}
			}
		})
	}
	for range 5 {
		cert, key = pair(t)
		write(t, certFile, cert)
		write(t, keyFile, key)
	}
	wg.Wait()
	if !serves(t, f, cert) {
		t.Error("the last pair is not served")
	}
}

func TestSelfSigned(t *testing.T) {
	c, err := certs.SelfSigned("localhost", "127.0.0.1", "pillion.pillion-system.svc")
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(c.Leaf)
	for _, name := range []string{"localhost", "127.0.0.1", "pillion.pillion-system.svc"} {
		if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.Leaf.SignatureAlgorithm != x509.ECDSAWithSHA256 {
		t.Errorf("signed with %v", c.Leaf.SignatureAlgorithm)
	}
}

func TestCheck(t *testing.T) {
	now := time.Now()
	c := &tls.Certificate{Leaf: &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}}
	for _, row := range []struct {
		at   time.Time
		want bool
	}{{now.Add(-2 * time.Hour), false}, {now, true}, {now.Add(2 * time.Hour), false}} {
		if _, err := certs.Check(c, row.at); (err == nil) != row.want {
			t.Errorf("at %v: %v", row.at, err)
		}
	}
}
