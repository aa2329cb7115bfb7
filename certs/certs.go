// SPDX-License-Identifier: Apache-2.0

// Package certs loads or creates the serving certificate and renews it.
//
// [Serving] holds the key pair in use and decides when to switch to a newer one.
// [Files] and [Secret] offer pairs to it. [Configurations] reports the caBundles that
// API servers trust. [Authority] creates pairs if no other source does.
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
	"net"
	"slices"
	"time"
)

// backdatePeriod returns how far in the past a new certificate becomes valid, because clocks differ.
func backdatePeriod(lifetime time.Duration) time.Duration { return min(time.Hour, lifetime) }

// ParsePair parses a PEM certificate with its chain, and its PEM key. Its errors are written
// for users.
func ParsePair(cert, key []byte) (*tls.Certificate, error) {
	switch {
	case len(bytes.TrimSpace(cert)) == 0:
		return nil, errors.New("the certificate is empty")
	case len(bytes.TrimSpace(key)) == 0:
		return nil, errors.New("the key is empty")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key do not match: %w", err)
	}
	return &pair, nil
}

// selfSignedFor is the lifetime of a self-signed certificate. It is longer than any process
// that keeps the certificate in memory runs.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// SelfSigned creates a certificate for the hosts (names and IP addresses). No client trusts it
// by default. Its key never leaves the process.
func SelfSigned(hosts ...string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := leafTemplate(time.Now(), selfSignedFor, hosts)
	template.Subject = pkix.Name{CommonName: "pillion self-signed"}
	return signPair(template, template, key, key)
}

// leafTemplate returns an unsigned serving certificate for the hosts.
func leafTemplate(now time.Time, lifetime time.Duration, hosts []string) *x509.Certificate {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "pillion"},
		NotBefore:             now.Add(-backdatePeriod(lifetime)),
		NotAfter:              now.Add(lifetime),
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
	return template
}

// signPair signs the template with the parent's key, and returns the pair.
func signPair(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (*tls.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// sameChain reports whether two pairs have the same chain, and therefore the same key.
func sameChain(a, b *tls.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// verifyPair returns an error if a client that trusts the roots would reject the pair for this
// host.
//
// It ignores expiry: outside the pair's validity period, it uses the nearest moment inside.
// Other code checks the period. A wrong clock must not affect the check of signatures.
func verifyPair(pair *tls.Certificate, host string, roots *x509.CertPool, now time.Time) error {
	intermediates := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(c)
		}
	}
	if now.Before(pair.Leaf.NotBefore) {
		now = pair.Leaf.NotBefore
	}
	if now.After(pair.Leaf.NotAfter) {
		now = pair.Leaf.NotAfter
	}
	_, err := pair.Leaf.Verify(x509.VerifyOptions{
		DNSName:       host,
		Roots:         roots,
		Intermediates: intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}
