// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Certificates are the accepted client certificates: signed by one of the CAs, for client
// authentication, with one of the names.
//
// Names are required. A cluster's CA signs a certificate for every kubelet, and any CA may
// sign certificates for other clients too.
type Certificates struct {
	pool  *x509.CertPool
	names []string
}

// ParseCertificates parses the CAs in PEM. A name must equal a certificate's common name, or
// one of its DNS names or URIs.
func ParseCertificates(authorities []byte, names []string) (*Certificates, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, errors.New("it has no CA certificate: it must be PEM")
	}
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, errors.New("a name for client certificates is required")
	}
	return &Certificates{pool, names}, nil
}

// verifyChain verifies the chain that the caller sent. The handshake has already proved that the
// caller has the key.
func (c *Certificates) verifyChain(chain []*x509.Certificate, now time.Time) *Rejection {
	leaf, intermediates := chain[0], x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: c.pool, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch invalid.Reason {
		case x509.Expired:
			return &Rejection{Reason: ExpiredCertificate, Sentence: "the client certificate has expired, or is not valid yet"}
		case x509.IncompatibleUsage:
			return &Rejection{Reason: UnknownCertificate, Sentence: "the client certificate is not for client authentication"}
		}
	}
	if err != nil {
		return &Rejection{Reason: UnknownCertificate, Sentence: "the client certificate is not from an accepted CA"}
	}
	if !slices.ContainsFunc(namesOf(leaf), func(name string) bool { return slices.Contains(c.names, name) }) {
		return &Rejection{Reason: WrongName, Sentence: fmt.Sprintf("the client certificate is for %q, which is not allowed to call", leaf.Subject.CommonName)}
	}
	return nil
}

func namesOf(leaf *x509.Certificate) []string {
	names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return names
}
