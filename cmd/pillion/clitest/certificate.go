// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"math/big"
	"testing"
)

// SignCertificate returns a certificate and its key, which are the same at every run. If the parent is nil, the certificate signs
// itself.
func SignCertificate(t *testing.T, seed byte, template, parent *x509.Certificate, parentKey ed25519.PrivateKey) (*x509.Certificate, ed25519.PrivateKey) {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	if parent == nil {
		parent, parentKey = template, key
	}
	template.SerialNumber, template.BasicConstraintsValid = big.NewInt(int64(seed)), true
	der, err := x509.CreateCertificate(nil, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
