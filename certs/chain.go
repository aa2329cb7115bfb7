// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
)

// Chain is what a cluster has between whoever issues Pillion's certificate and the
// API servers that have to trust it. What the cluster has not is nil or missing.
type Chain struct {
	Now            time.Time
	Host           string // the name that API servers verify
	Configurations []WebhookConfiguration
	CertManager    bool // whether the cluster knows its kinds
	Issuer         certmanagerv1.GenericIssuer
	Certificate    *certmanagerv1.Certificate
	SecretName     string // namespace/name
	Secret         *corev1.Secret
	SelfManaged    bool // whether Pillion is told to make the certificate
	Served         []Endpoint
	Outside        bool     // whether API servers call an address, so that there need be no Secret
	Deserted       string   // namespace/name of the Service, where no endpoint is ready
	Unread         []string // sentences about what the asker may not read
}

// WebhookConfiguration is what counts here of a Mutating- or ValidatingWebhookConfiguration.
type WebhookConfiguration struct {
	Kind, Name string
	Found      bool
	Unread     bool   // the asker may not read it: it may be there or not
	Optional   bool   // another source than the others' is none
	InjectFrom string // the annotation cert-manager.io/inject-ca-from
	CABundles  []CABundle
}

// Endpoint is who was asked for its certificate.
type Endpoint struct {
	Address string
	Chain   []*x509.Certificate // as presented, the server's own first
	Err     error               // why it could not be asked
}

// The sources of a certificate.
const (
	SourceCertManager = "cert-manager"
	SourceSelfManaged = "self-managed"
	SourceOwn         = "own"
)

// ChainReport is what `pillion certs -o json` writes.
type ChainReport struct {
	// Source is cert-manager, self-managed (by Pillion), or own (yours); missing where too little may be read to tell.
	Source string `json:"source,omitempty"`
	// Host is the name that API servers verify.
	Host        string             `json:"host"`
	Issuer      *IssuerReport      `json:"issuer,omitempty"`
	Certificate *CertificateReport `json:"certificate,omitempty"`
	Secret      *SecretReport      `json:"secret,omitempty"`
	// Trust is, for each webhook, what its caBundle trusts.
	Trust []TrustReport `json:"trust"`
	// Served is what was presented: by each endpoint, or else what the Secret holds.
	Served []ServedReport `json:"served"`
	// Notes are worth knowing, and nothing is wrong.
	Notes []string `json:"notes,omitempty"`
	// Problems are sentences: what is wrong and what to do, causes first. None: all is well.
	Problems []string `json:"problems"`
}

// IssuerReport is cert-manager's Issuer or ClusterIssuer.
type IssuerReport struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// CertificateReport is cert-manager's Certificate.
type CertificateReport struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Ready     bool       `json:"ready"`
	Issuing   bool       `json:"issuing"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
	Renewal   *time.Time `json:"renewal,omitempty"`
}

// SecretReport is the Secret that Pillion serves from.
type SecretReport struct {
	Name string `json:"name"` // namespace/name
	// Certificate is missing when the Secret has no usable pair.
	Certificate *X509Report `json:"certificate,omitempty"`
}

// TrustReport is one webhook's caBundle.
type TrustReport struct {
	Configuration string       `json:"configuration"` // Kind/name
	Webhook       string       `json:"webhook"`
	Certificates  []X509Report `json:"certificates"`
}

// ServedReport is a certificate that was presented.
type ServedReport struct {
	// From is an endpoint's host:port, or Secret/namespace/name.
	From        string      `json:"from"`
	Certificate *X509Report `json:"certificate,omitempty"`
	// Verified is whether every webhook's caBundle verifies it, for Host, and its time is now.
	Verified bool   `json:"verified"`
	Error    string `json:"error,omitempty"`
}

// X509Report is a certificate.
type X509Report struct {
	Subject string    `json:"subject"`
	Issuer  string    `json:"issuer"`
	Names   []string  `json:"names,omitempty"`
	Begins  time.Time `json:"begins"`
	Expires time.Time `json:"expires"`
	// SHA256 is the fingerprint of the whole certificate.
	SHA256 string `json:"sha256"`
}

func reportX509(c *x509.Certificate) X509Report {
	sum := sha256.Sum256(c.Raw)
	return X509Report{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Names: c.DNSNames,
		Begins: c.NotBefore.UTC(), Expires: c.NotAfter.UTC(), SHA256: hex.EncodeToString(sum[:]),
	}
}

// bundleCertificates are those of a caBundle that can be read.
func bundleCertificates(bundle []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, c)
		}
	}
	return all
}

// asPair is a presented chain in the form that [verify] takes.
func asPair(chain []*x509.Certificate) *tls.Certificate {
	pair := &tls.Certificate{Leaf: chain[0]}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair
}

// Report judges the chain.
func (c *Chain) Report() *ChainReport {
	r := &ChainReport{Source: c.source(), Host: c.Host, Trust: []TrustReport{}, Served: []ServedReport{}, Problems: []string{}}
	r.Notes = append(r.Notes, c.Unread...)
	pair, problem := c.fromIssuerToSecret(r)
	if problem != "" {
		r.Problems = append(r.Problems, problem)
	}
	r.Problems = append(r.Problems, c.checkTrust(r, pair)...)
	r.Problems = append(r.Problems, c.checkServed(r, pair)...) // last: it counts what was found before
	return r
}

func (c *Chain) source() string {
	for _, w := range c.Configurations {
		if w.InjectFrom != "" && !w.Optional {
			return SourceCertManager
		}
	}
	switch {
	case c.Certificate != nil:
		return SourceCertManager
	case c.SelfManaged, c.Secret != nil && len(c.Secret.Data[keyCAKey]) > 0:
		return SourceSelfManaged
	case slices.ContainsFunc(c.Configurations, func(w WebhookConfiguration) bool { return w.Unread }):
		return ""
	}
	return SourceOwn
}

// fromIssuerToSecret follows the chain to the pair that the Secret holds, up to the
// first link that is broken: what comes behind it is broken because of it.
func (c *Chain) fromIssuerToSecret(r *ChainReport) (pair *tls.Certificate, problem string) {
	if r.Source == SourceCertManager {
		problem = c.checkCertManager(r)
	}
	if c.Secret == nil {
		if problem == "" && len(c.Unread) == 0 && !c.Outside {
			problem = fmt.Sprintf("the Secret %s does not exist; %s", c.SecretName, c.whoMakesIt(r.Source))
		}
		return nil, problem
	}
	r.Secret = &SecretReport{Name: c.SecretName}
	pair, err := ParsePair(c.Secret.Data[corev1.TLSCertKey], c.Secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		if problem == "" {
			problem = fmt.Sprintf("the Secret %s cannot be used (%v); %s", c.SecretName, err, c.whoMakesIt(r.Source))
		}
		return nil, problem
	}
	r.Secret.Certificate = new(reportX509(pair.Leaf))
	if problem == "" {
		problem = c.checkTime(pair.Leaf, "the Secret "+c.SecretName, r.Source)
	}
	return pair, problem
}

func (c *Chain) whoMakesIt(source string) string {
	switch source {
	case SourceCertManager:
		return "cert-manager creates it; run `kubectl -n " + namespaceOf(c.SecretName) + " describe certificate,certificaterequest` to see why it did not"
	case SourceSelfManaged:
		return "Pillion creates it; check that one of its pods runs, and read its log"
	}
	return "put a certificate for " + c.Host + " and its key there, or install with cert-manager"
}

// checkTime finds a certificate whose time is not now.
func (c *Chain) checkTime(leaf *x509.Certificate, where, source string) string {
	switch {
	case c.Now.After(leaf.NotAfter):
		return fmt.Sprintf("the certificate of %s expired at %s; %s", where, stamp(leaf.NotAfter), c.whoMakesIt(source))
	case c.Now.Before(leaf.NotBefore):
		return fmt.Sprintf("the certificate of %s is not valid before %s; compare the clocks", where, stamp(leaf.NotBefore))
	}
	return ""
}
