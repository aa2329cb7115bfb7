// SPDX-License-Identifier: Apache-2.0

// Package certs is where the serving certificate comes from and how it stays
// fresh: [Files] follows a pair of files, [SelfSigned] makes one in memory.
package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// Files is a certificate and its key in two PEM files.
//
// The files are read at every handshake, which costs a fiftieth of it, instead
// of being watched: there is no goroutine, no event to miss, and no moment at
// which a renewed pair is not served yet. A pair that is half written, broken or
// gone leaves the last good one in use.
type Files struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex // of handshakes, not of requests
	cert, key []byte     // as they were when current was made of them
	current   *tls.Certificate
	problem   error
}

// NewFiles reads the pair for the first time; here a bad one is an error.
func NewFiles(certFile, keyFile string, log *slog.Logger) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, log: log}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// GetCertificate is for [tls.Config]: the pair that the files hold now, or the
// last good one. It never fails.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.problem
	f.problem = f.load()
	if f.problem != nil && (before == nil || before.Error() != f.problem.Error()) {
		f.log.Warn("the certificate cannot be reloaded, the last good one stays in use", "error", f.problem)
	}
	return f.current, nil
}

// Problem says why the files could not be used at the last handshake, or nil.
func (f *Files) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

func (f *Files) load() error {
	cert, err := os.ReadFile(f.certFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		return err
	}
	if f.current != nil && bytes.Equal(cert, f.cert) && bytes.Equal(key, f.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s are no pair: %w", f.certFile, f.keyFile, err)
	}
	f.cert, f.key, f.current = cert, key, &pair
	f.log.Info("certificate loaded", "file", f.certFile, "names", pair.Leaf.DNSNames, "expires", pair.Leaf.NotAfter)
	return nil
}

// selfSignedFor is how long a self-signed certificate is valid: longer than any
// process that keeps it in memory runs.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// SelfSigned makes a certificate for the hosts (names and IP addresses) that
// nobody trusts until they are told to. Its key never leaves the process.
func SelfSigned(hosts ...string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "pillion self-signed"},
		NotBefore:             now.Add(-time.Hour), // clocks differ
		NotAfter:              now.Add(selfSignedFor),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Check says until when a certificate is valid; the error, that it is not now.
func Check(c *tls.Certificate, now time.Time) (until time.Time, err error) {
	switch until = c.Leaf.NotAfter; {
	case now.After(until):
		err = fmt.Errorf("the certificate expired at %s", until.Format(time.RFC3339))
	case now.Before(c.Leaf.NotBefore):
		err = errors.New("the certificate is not valid before " + c.Leaf.NotBefore.Format(time.RFC3339))
	}
	return until, err
}
