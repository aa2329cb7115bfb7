// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"slices"
	"time"
)

// Policy describes the certificates that an [Authority] issues.
type Policy struct {
	Hosts []string // names and addresses of a certificate
	// A certificate or CA is renewed after two thirds of its lifetime. A CA must live several
	// times as long as a certificate.
	LeafLifetime, CALifetime time.Duration
}

// planNext returns the next material to replace m, with descriptions for the log, or nothing if m
// needs no change. It is called repeatedly and makes one step at a time. A new CA issues its
// first certificate only after API servers trust it, or if there is no more time to wait.
func (p Policy) planNext(m material, now moment, trusted func(*x509.Certificate) bool) (next material, done []string, err error) {
	next = m
	if why := p.caDue(m.ca, now); why != "" {
		if next.ca, err = p.newCA(now.steady); err != nil {
			return m, nil, err
		}
		done = append(done, "new CA: "+why)
	}
	next.bundle = slices.DeleteFunc(slices.Clone(m.bundle), func(c *x509.Certificate) bool { return now.isPast(c.NotAfter) })
	if !containsCertificate(next.bundle, next.ca.cert) {
		next.bundle = append(next.bundle, next.ca.cert)
	}
	why, wait := p.leafDue(next, now)
	if why == "" || wait && !trusted(next.ca.cert) {
		return next, done, nil
	}
	if next.leaf, err = p.issueLeaf(next.ca, now.steady); err != nil {
		return m, nil, err
	}
	return next, append(done, "new certificate: "+why), nil
}

// caDue returns why a new CA is required, or "".
func (p Policy) caDue(ca *issuer, now moment) string {
	switch {
	case ca == nil:
		return "there is no CA, or its key is missing"
	case now.isPast(ca.cert.NotAfter.Add(-max(p.CALifetime/3, p.LeafLifetime))):
		return "the old one expires at " + formatTime(ca.cert.NotAfter)
	}
	return ""
}

// leafDue returns why a new certificate is required, and whether it can wait until API servers
// trust its CA. It can wait while the old certificate is valid.
func (p Policy) leafDue(m material, now moment) (why string, wait bool) {
	if m.leaf == nil {
		return "there is no certificate, or it is invalid", false
	}
	leaf, roots := m.leaf.Leaf, x509.NewCertPool()
	for _, c := range m.bundle {
		roots.AddCert(c)
	}
	for _, host := range p.Hosts {
		if err := now.verifyPair(m.leaf, host, roots); err != nil {
			return "the old one is invalid: " + err.Error(), false
		}
	}
	switch issued := leaf.CheckSignatureFrom(m.ca.cert) == nil; {
	case now.isPast(switchDeadline(leaf)):
		return "the old one expires at " + formatTime(leaf.NotAfter), false
	case !issued:
		return "there is a new CA", true
	case now.isPast(leaf.NotAfter.Add(-p.LeafLifetime / 3)):
		return "the old one expires at " + formatTime(leaf.NotAfter), true
	}
	return "", false
}

func (p Policy) newCA(now time.Time) (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "pillion CA " + hex.EncodeToString(id)}, // differs for each CA in a bundle
		NotBefore:             now.Add(-backdatePeriod(p.CALifetime)),
		NotAfter:              now.Add(p.CALifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	pair, err := signPair(template, template, key, key)
	if err != nil {
		return nil, err
	}
	return &issuer{pair.Leaf, key}, nil
}

// issueLeaf creates a certificate that expires no later than its CA.
func (p Policy) issueLeaf(ca *issuer, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := leafTemplate(now, p.LeafLifetime, p.Hosts)
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	return signPair(template, ca.cert, key, ca.key)
}
