// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
)

// Chain is the data between the issuer of Pillion's certificate and the API servers that must
// trust the certificate. Objects that do not exist are nil or missing.
type Chain struct {
	Now            time.Time
	Host           string // the name that API servers verify
	Configurations []WebhookConfiguration
	CertManager    bool // whether the cluster has its resource types
	Issuer         certmanagerv1.GenericIssuer
	Certificate    *certmanagerv1.Certificate
	SecretName     string // namespace/name
	Secret         *corev1.Secret
	SelfManaged    bool // whether Pillion is configured to create the certificate
	Served         []Endpoint
	Outside        bool     // whether API servers call Pillion by address, so that no Secret is required
	Deserted       string   // namespace/name of the Service, if it has no ready endpoint
	Unread         []string // sentences about what the user is not allowed to read
}

// WebhookConfiguration contains the relevant fields of a Mutating- or
// ValidatingWebhookConfiguration.
type WebhookConfiguration struct {
	Kind, Name string
	Found      bool
	Unread     bool   // the user is not allowed to read it; it may not exist
	Optional   bool   // does not count when the source of the CA is determined
	InjectFrom string // the annotation cert-manager.io/inject-ca-from
	CABundles  []CABundle
}

// Endpoint is an endpoint and the certificate that it presented.
type Endpoint struct {
	Address string
	Chain   []*x509.Certificate // as presented, the server's certificate first
	Err     error               // why the connection failed
}

// The sources of a certificate.
const (
	SourceCertManager = "cert-manager"
	SourceSelfManaged = "self-managed"
	SourceOwn         = "own"
)

// ChainReport is the output of `pillion certs -o json`.
type ChainReport struct {
	// Source is cert-manager, self-managed (by Pillion), or own (yours). It is missing if the
	// user's permissions do not suffice to find out.
	Source string `json:"source,omitempty"`
	// Host is the name that API servers verify.
	Host        string             `json:"host"`
	Issuer      *IssuerReport      `json:"issuer,omitempty"`
	Certificate *CertificateReport `json:"certificate,omitempty"`
	Secret      *SecretReport      `json:"secret,omitempty"`
	// Trust has an entry for the caBundle of each webhook.
	Trust []TrustReport `json:"trust"`
	// Served has the certificate that each endpoint presented, or, if none was reached, that of
	// the Secret.
	Served []ServedReport `json:"served"`
	// Notes are worth knowing, but are not problems.
	Notes []string `json:"notes,omitempty"`
	// Problems are sentences: what is wrong and what to do, causes first. It is empty if all is
	// well.
	Problems []string `json:"problems"`

	// Unseen are those of the problems that are only that something cannot be read from here.
	Unseen []string `json:"-"`
}

// IssuerReport describes cert-manager's Issuer or ClusterIssuer.
type IssuerReport struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// CertificateReport describes cert-manager's Certificate.
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

// SecretReport describes the Secret with the serving certificate.
type SecretReport struct {
	Name string `json:"name"` // namespace/name
	// Certificate is missing if the Secret has no usable pair.
	Certificate *X509Report `json:"certificate,omitempty"`
}

// TrustReport describes the caBundle of one webhook.
type TrustReport struct {
	Configuration string       `json:"configuration"` // Kind/name
	Webhook       string       `json:"webhook"`
	Certificates  []X509Report `json:"certificates"`
}

// ServedReport describes a certificate that an endpoint presented.
type ServedReport struct {
	// From is an endpoint's host:port, or Secret/namespace/name.
	From        string      `json:"from"`
	Certificate *X509Report `json:"certificate,omitempty"`
	// Verified reports whether the certificate is valid now and every webhook's caBundle
	// verifies it for Host.
	Verified bool   `json:"verified"`
	Error    string `json:"error,omitempty"`
}

// X509Report describes a certificate.
type X509Report struct {
	Subject string    `json:"subject"`
	Issuer  string    `json:"issuer"`
	Names   []string  `json:"names,omitempty"`
	Begins  time.Time `json:"begins"`
	Expires time.Time `json:"expires"`
	// SHA256 is the fingerprint of the whole certificate.
	SHA256 string `json:"sha256"`
}

// Overdue reports whether the certificate should have been renewed: less than 14 days and less than
// a fifth of its lifetime are left.
func (r *X509Report) Overdue(now time.Time) bool {
	left := r.Expires.Sub(now)
	return left < 14*24*time.Hour && 5*left < r.Expires.Sub(r.Begins)
}

func reportX509(c *x509.Certificate) X509Report {
	sum := sha256.Sum256(c.Raw)
	return X509Report{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Names: c.DNSNames,
		Begins: c.NotBefore.UTC(), Expires: c.NotAfter.UTC(), SHA256: hex.EncodeToString(sum[:]),
	}
}

// asPair converts a presented chain for [verifyPair].
func asPair(chain []*x509.Certificate) *tls.Certificate {
	pair := &tls.Certificate{Leaf: chain[0]}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair
}

// Report checks the chain and returns the result.
func (c *Chain) Report() *ChainReport {
	r := &ChainReport{Source: c.certificateSource(), Host: c.Host, Trust: []TrustReport{}, Served: []ServedReport{}, Problems: []string{}}
	r.Notes = append(r.Notes, c.Unread...)
	pair, problem := c.fromIssuerToSecret(r)
	if problem != "" {
		r.Problems = append(r.Problems, problem)
	}
	r.Problems = append(r.Problems, c.checkTrust(r, pair)...)
	r.Problems = append(r.Problems, c.checkServed(r, pair)...) // last: it depends on the problems found before
	return r
}

func (c *Chain) certificateSource() string {
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

// fromIssuerToSecret follows the chain to the pair in the Secret. It stops at the first broken
// link, because later problems are only a consequence of that one.
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

// checkTime returns a problem if a certificate has expired or is not valid yet.
func (c *Chain) checkTime(leaf *x509.Certificate, where, source string) string {
	switch {
	case c.Now.After(leaf.NotAfter):
		return fmt.Sprintf("the certificate of %s expired at %s; %s", where, formatTime(leaf.NotAfter), c.whoMakesIt(source))
	case c.Now.Before(leaf.NotBefore):
		return fmt.Sprintf("the certificate of %s is not valid before %s; compare the clocks", where, formatTime(leaf.NotBefore))
	}
	return ""
}
