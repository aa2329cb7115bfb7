// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
)

// The keys of the Secret. The first three are the usual ones of TLS Secrets.
const (
	keyLeaf     = "tls.crt"
	keyLeafKey  = "tls.key"
	keyCA       = "ca.crt"
	keyCAKey    = "ca.key"
	keyCABundle = "ca-bundle.crt"
)

// material is the content of the Secret.
type material struct {
	leaf   *tls.Certificate    // nil: missing or invalid
	ca     *issuer             // issuer of the next leaf; nil: missing or invalid
	bundle []*x509.Certificate // all CAs that API servers must trust
}

// issuer is a CA with its key.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// parseMaterial parses the valid parts of the data and ignores the rest. If there is no
// bundle, the bundle consists of the CA.
func parseMaterial(data map[string][]byte) material {
	var m material
	m.leaf, _ = ParsePair(data[keyLeaf], data[keyLeafKey])
	if ca, err := ParsePair(data[keyCA], data[keyCAKey]); err == nil && ca.Leaf.IsCA {
		if key, ok := ca.PrivateKey.(*ecdsa.PrivateKey); ok {
			m.ca = &issuer{ca.Leaf, key}
		}
	}
	m.bundle = parseCertificates(data[keyCABundle])
	if len(m.bundle) == 0 {
		m.bundle = parseCertificates(data[keyCA])
	}
	return m
}

// parseCertificates returns the certificates in a PEM string.
func parseCertificates(text []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, c)
		}
	}
	return all
}

// secretData returns the material in the format of the Secret.
func (m material) secretData() (map[string][]byte, error) {
	leafKey, err := x509.MarshalPKCS8PrivateKey(m.leaf.PrivateKey)
	if err != nil {
		return nil, err
	}
	caKey, err := x509.MarshalPKCS8PrivateKey(m.ca.key)
	if err != nil {
		return nil, err
	}
	var chain []byte
	for _, der := range m.leaf.Certificate {
		chain = append(chain, encodePEM("CERTIFICATE", der)...)
	}
	return map[string][]byte{
		keyLeaf:     chain,
		keyLeafKey:  encodePEM("PRIVATE KEY", leafKey),
		keyCA:       encodePEM("CERTIFICATE", m.ca.cert.Raw),
		keyCAKey:    encodePEM("PRIVATE KEY", caKey),
		keyCABundle: m.caBundle(),
	}, nil
}

// caBundle returns the certificates that API servers must trust, in PEM.
func (m material) caBundle() []byte {
	var text []byte
	for _, c := range m.bundle {
		text = append(text, encodePEM("CERTIFICATE", c.Raw)...)
	}
	return text
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// containsCertificate reports whether one of the certificates is c.
func containsCertificate(all []*x509.Certificate, c *x509.Certificate) bool {
	return slices.ContainsFunc(all, c.Equal)
}

// mergeData returns data with the wanted entries in it.
func mergeData(data, wanted map[string][]byte) map[string][]byte {
	all := maps.Clone(data)
	if all == nil {
		all = map[string][]byte{}
	}
	maps.Copy(all, wanted)
	return all
}
