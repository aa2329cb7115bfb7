// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const chainHost = "pillion.pillion-system.svc"

var chainNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// issued is a certificate with its key.
type issued struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

func (i issued) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

func (i issued) keyPEM(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// issue makes a certificate; without a parent, a CA.
func issue(t *testing.T, parent *issued, begins time.Time, names ...string) issued {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(begins.UnixNano()), NotBefore: begins, NotAfter: begins.AddDate(0, 0, 90), DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	signer := &issued{template, key}
	if parent == nil {
		template.Subject = pkix.Name{CommonName: "pillion-ca"}
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		template.NotAfter = begins.AddDate(10, 0, 0)
	} else {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, public, signer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return issued{cert, key}
}

// chainCase is a cluster in which all is well, to be broken by a case.
type chainCase struct {
	t        *testing.T
	ca, leaf issued
	*Chain
}

func newChainCase(t *testing.T) *chainCase {
	t.Helper()
	ca := issue(t, nil, chainNow.AddDate(0, -1, 0))
	leaf := issue(t, &ca, chainNow.AddDate(0, 0, -10), chainHost)
	c := &chainCase{t, ca, leaf, &Chain{
		Now: chainNow, Host: chainHost, CertManager: true, SecretName: "pillion-system/pillion-tls",
		Issuer: &certmanagerv1.Issuer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "pillion-system", Name: "pillion-ca"},
			Status:     certmanagerv1.IssuerStatus{Conditions: []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}},
		},
		Certificate: &certmanagerv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "pillion-system", Name: "pillion"},
			Spec:       certmanagerv1.CertificateSpec{SecretName: "pillion-tls", IssuerRef: cmmeta.IssuerReference{Name: "pillion-ca"}},
			Status: certmanagerv1.CertificateStatus{
				Conditions:  []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue}},
				NotAfter:    &metav1.Time{Time: leaf.cert.NotAfter},
				RenewalTime: &metav1.Time{Time: leaf.cert.NotAfter.AddDate(0, 0, -30)},
			},
		},
	}}
	for _, kind := range []string{"Mutating", "Validating"} {
		c.Configurations = append(c.Configurations, WebhookConfiguration{
			Kind: kind + "WebhookConfiguration", Name: "pillion", Found: true, InjectFrom: "pillion-system/pillion",
			CABundles: []CABundle{
				{Webhook: "namespace." + strings.ToLower(kind), Host: chainHost, Bundle: ca.certPEM()},
				{Webhook: "pod." + strings.ToLower(kind), Host: chainHost, Bundle: ca.certPEM()},
			},
		})
	}
	c.hold(leaf)
	c.present(leaf)
	return c
}

// hold puts a pair into the Secret.
func (c *chainCase) hold(pair issued) {
	c.Secret = &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: pair.certPEM(), corev1.TLSPrivateKeyKey: pair.keyPEM(c.t)}}
}

// present has one endpoint present the certificate.
func (c *chainCase) present(pair issued) {
	c.Served = []Endpoint{{Address: "10.1.1.1:8443", Chain: []*x509.Certificate{pair.cert}}}
}

// bundle gives every webhook another caBundle.
func (c *chainCase) bundle(bundle []byte) {
	for _, w := range c.Configurations {
		for n := range w.CABundles {
			w.CABundles[n].Bundle = bundle
		}
	}
}

// own takes cert-manager away.
func (c *chainCase) own() {
	c.CertManager, c.Issuer, c.Certificate = false, nil, nil
	for n := range c.Configurations {
		c.Configurations[n].InjectFrom = ""
	}
}

// TestChain checks that exactly the listed problems are found, in this order. Each case has the
// beginnings of the problems.
func TestChain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*chainCase)
		want  []string
	}{
		"well":       {func(*chainCase) {}, nil},
		"well, own":  {(*chainCase).own, nil},
		"no secret":  {func(c *chainCase) { c.Secret, c.Served = nil, nil }, []string{"the Secret pillion-system/pillion-tls does not exist; cert-manager creates it"}},
		"half":       {func(c *chainCase) { delete(c.Secret.Data, corev1.TLSPrivateKeyKey) }, []string{"the Secret pillion-system/pillion-tls cannot be used (the key is empty)"}},
		"not fitted": {func(c *chainCase) { c.Secret.Data[corev1.TLSPrivateKeyKey] = c.ca.keyPEM(c.t) }, []string{"the Secret pillion-system/pillion-tls cannot be used (certificate and key do not match"}},
		"issuer not ready": {func(c *chainCase) {
			c.Issuer.GetStatus().Conditions[0] = certmanagerv1.IssuerCondition{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse, Reason: "ErrGetKeyPair", Message: "no  such\nsecret"}
			c.Secret, c.Served = nil, nil
			c.bundle(nil)
		}, []string{"the Issuer pillion-ca is not ready (ErrGetKeyPair: no such secret)"}},
		"certificate not ready": {func(c *chainCase) {
			c.Certificate.Status.Conditions[0] = certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionFalse, Reason: "DoesNotExist"}
			c.Secret, c.Served = nil, nil
		}, []string{"the Certificate pillion-system/pillion is not ready (DoesNotExist)"}},
		"no certificate":  {func(c *chainCase) { c.Certificate, c.Issuer = nil, nil }, []string{"the Certificate pillion-system/pillion does not exist"}},
		"no issuer":       {func(c *chainCase) { c.Issuer = nil }, []string{"the Issuer pillion-ca does not exist"}},
		"no cert-manager": {func(c *chainCase) { c.CertManager, c.Certificate, c.Issuer = false, nil, nil }, []string{"cert-manager is not installed"}},
		"renewal late": {func(c *chainCase) {
			c.Certificate.Status.RenewalTime = &metav1.Time{Time: chainNow.Add(-time.Hour)}
		}, []string{"the Certificate pillion-system/pillion should have been renewed at 2026-11-21T11:00:00Z and was not"}},
		"expired": {func(c *chainCase) {
			old := issue(t, &c.ca, chainNow.AddDate(0, 0, -91), chainHost)
			c.hold(old)
			c.present(old)
		}, []string{"the certificate of the Secret pillion-system/pillion-tls expired at 2026-11-20"}},
		"not yet": {func(c *chainCase) { c.hold(issue(t, &c.ca, chainNow.Add(time.Hour), chainHost)) }, []string{"the certificate of the Secret pillion-system/pillion-tls is not valid before"}},
		"wrong name": {func(c *chainCase) {
			other := issue(t, &c.ca, chainNow.AddDate(0, 0, -1), "other.example.com")
			c.hold(other)
			c.present(other)
		}, []string{"MutatingWebhookConfiguration/pillion: the caBundle of namespace.mutating, pod.mutating does not verify", "ValidatingWebhookConfiguration/pillion: the caBundle of"}},
		"empty": {func(c *chainCase) { c.Configurations[0].CABundles[1].Bundle = nil }, []string{"MutatingWebhookConfiguration/pillion: the caBundle of pod.mutating is empty"}},
		"garbage": {func(c *chainCase) { c.Configurations[1].CABundles[0].Bundle = []byte("hello") }, []string{
			"ValidatingWebhookConfiguration/pillion: the caBundle of namespace.validating holds no certificate",
		}},
		"another CA": {func(c *chainCase) { c.bundle(issue(t, nil, chainNow.AddDate(0, -1, 0)).certPEM()) }, []string{
			"MutatingWebhookConfiguration/pillion: the caBundle of namespace.mutating, pod.mutating does not verify the certificate of the Secret pillion-system/pillion-tls; cert-manager's cainjector",
			"ValidatingWebhookConfiguration/pillion",
		}},
		"two CAs": {func(c *chainCase) {
			c.bundle(append(issue(t, nil, chainNow.AddDate(0, -1, 0)).certPEM(), c.ca.certPEM()...))
		}, nil},
		"no annotation": {func(c *chainCase) { c.Configurations[1].InjectFrom = "" }, []string{"ValidatingWebhookConfiguration/pillion lacks the annotation cert-manager.io/inject-ca-from"}},
		"no configuration": {func(c *chainCase) {
			c.Configurations[0] = WebhookConfiguration{Kind: "MutatingWebhookConfiguration", Name: "pillion"}
		}, []string{"MutatingWebhookConfiguration/pillion does not exist"}},
		"a configuration may not be read": {func(c *chainCase) {
			c.Configurations[0] = WebhookConfiguration{Kind: "MutatingWebhookConfiguration", Name: "pillion", Unread: true}
			c.Unread = []string{"you may not read it"}
		}, []string{"certs cannot see what API servers trust; ask for the right to read MutatingWebhookConfiguration/pillion"}},
		"older, just now":     {func(c *chainCase) { c.hold(issue(t, &c.ca, chainNow.Add(-time.Minute), chainHost)) }, nil},
		"older, for too long": {func(c *chainCase) { c.hold(issue(t, &c.ca, chainNow.Add(-time.Hour), chainHost)) }, []string{"10.1.1.1:8443 does not serve the certificate of the Secret"}},
		"waiting for trust": {func(c *chainCase) { // the served certificate is trusted, and the next one is not
			other := issue(t, nil, chainNow.AddDate(0, 0, -1))
			c.hold(issue(t, &other, chainNow.Add(-time.Hour), chainHost))
		}, []string{"MutatingWebhookConfiguration/pillion: the caBundle of", "ValidatingWebhookConfiguration/pillion: the caBundle of"}},
		"served is not trusted": {func(c *chainCase) {
			other := issue(t, nil, chainNow.AddDate(0, 0, -1))
			c.present(issue(t, &other, chainNow.Add(-time.Hour), chainHost))
		}, []string{"10.1.1.1:8443 presents a certificate that the caBundle of namespace.mutating does not verify"}},
		"served has expired": {func(c *chainCase) {
			c.present(issue(t, &c.ca, chainNow.AddDate(0, 0, -91), chainHost))
		}, []string{"the certificate of 10.1.1.1:8443 expired at"}},
		"not reached": {func(c *chainCase) { c.Served = []Endpoint{{Address: "10.1.1.1:8443", Err: errors.New("no route")}} }, nil},
		"nobody serves": {func(c *chainCase) { c.Served, c.Deserted = nil, "pillion-system/pillion" }, []string{
			"the Service pillion-system/pillion has no ready endpoint, so no pod of Pillion answers API servers",
		}},
		"nobody serves yet": {func(c *chainCase) {
			c.own()
			c.bundle(nil)
			c.Secret, c.Served, c.SelfManaged, c.Deserted = nil, nil, true, "pillion-system/pillion"
		}, []string{"the Secret pillion-system/pillion-tls does not exist; Pillion creates it", "the Service pillion-system/pillion has no"}},
		"advising": {func(c *chainCase) {
			c.own()
			c.Configurations = append(c.Configurations, WebhookConfiguration{
				Kind: "ValidatingWebhookConfiguration", Name: "pillion-advise", Found: true, Optional: true, InjectFrom: "pillion-system/pillion",
				CABundles: []CABundle{{Webhook: "namespace.advising", Host: chainHost}},
			})
		}, []string{"ValidatingWebhookConfiguration/pillion-advise: the caBundle of namespace.advising is empty, so API servers cannot verify Pillion; put the"}},
		"nothing may be read": {func(c *chainCase) {
			c.Secret, c.Served, c.Unread = nil, nil, []string{"you may not read the Secret"}
		}, []string{"certs cannot see which certificate is served; name an endpoint"}},
		"may not be read":  {func(c *chainCase) { c.Secret, c.Unread = nil, []string{"you may not read the Secret"} }, nil},
		"own, no secret":   {func(c *chainCase) { c.own(); c.Secret = nil }, []string{"the Secret pillion-system/pillion-tls does not exist; put a certificate for pillion.pillion-system.svc"}},
		"own, empty":       {func(c *chainCase) { c.own(); c.bundle(nil) }, []string{"MutatingWebhookConfiguration/pillion", "ValidatingWebhookConfiguration/pillion"}},
		"self-managed":     {func(c *chainCase) { c.own(); c.Secret.Data[keyCAKey] = c.ca.keyPEM(c.t) }, nil},
		"self-managed, no": {func(c *chainCase) { c.own(); c.Secret.Data = map[string][]byte{keyCAKey: {1}} }, []string{"the Secret pillion-system/pillion-tls cannot be used (the certificate is empty); Pillion creates it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChainCase(t)
			test.spoil(c)
			report := c.Report()
			if !slices.EqualFunc(report.Problems, test.want, strings.HasPrefix) {
				t.Errorf("problems are\n%s\nwant the beginnings\n%s", strings.Join(report.Problems, "\n"), strings.Join(test.want, "\n"))
			}
			for _, problem := range report.Problems {
				if !strings.Contains(problem, "; ") {
					t.Errorf("%q does not say what to do", problem)
				}
			}
			for _, s := range report.Served {
				if s.Error == "" && s.Certificate == nil {
					t.Errorf("%s: neither a certificate nor why not", s.From)
				}
			}
		})
	}
}

// TestChainSource checks that the report names the source of the certificate.
func TestChainSource(t *testing.T) {
	t.Parallel()
	c := newChainCase(t)
	if got := c.Report().Source; got != SourceCertManager {
		t.Errorf("source is %q", got)
	}
	c.own()
	if got := c.Report().Source; got != SourceOwn {
		t.Errorf("source is %q", got)
	}
	c.Secret.Data[keyCAKey] = []byte("a key")
	if got := c.Report().Source; got != SourceSelfManaged {
		t.Errorf("source is %q", got)
	}
}

// TestChainServed checks that if no endpoint presents a certificate, the report uses the Secret,
// and notes that.
func TestChainServed(t *testing.T) {
	t.Parallel()
	c := newChainCase(t)
	c.Served = []Endpoint{{Address: "10.1.1.1:8443", Err: errors.New("no route")}}
	r := c.Report()
	last := r.Served[len(r.Served)-1]
	if last.From != "Secret/pillion-system/pillion-tls" || !last.Verified || len(r.Notes) != 1 {
		t.Errorf("served: %+v, notes: %q", r.Served, r.Notes)
	}
	c.bundle(nil)
	if r := c.Report(); r.Served[len(r.Served)-1].Verified {
		t.Error("verified by an empty caBundle")
	}
}

// TestOverdue checks when a certificate should have been renewed: less than 14 days and less than a fifth
// of its lifetime are left.
func TestOverdue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lifetime, left int // days
		want           bool
	}{{90, 30, false}, {90, 15, false}, {90, 13, true}, {90, -1, true}, {7, 2, false}, {7, 1, true}, {365, 60, false}} {
		r := X509Report{Begins: chainNow.AddDate(0, 0, test.left-test.lifetime), Expires: chainNow.AddDate(0, 0, test.left)}
		if got := r.Overdue(chainNow); got != test.want {
			t.Errorf("%d of %d days are left: %t", test.left, test.lifetime, got)
		}
	}
}
