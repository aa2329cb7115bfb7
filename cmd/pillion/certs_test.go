// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/testing/golden"
)

type objectsAPI = clitest.API

const (
	mutatingPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/pillion"
	validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/pillion"
	advisingPath   = validatingPath + "-advise"
	deploymentPath = "/apis/apps/v1/namespaces/pillion-system/deployments/pillion"
	secretPath     = "/api/v1/namespaces/pillion-system/secrets/pillion-tls"
	slicesPath     = "/apis/discovery.k8s.io/v1/namespaces/pillion-system/endpointslices"
	cmPath         = "/apis/cert-manager.io/v1"
	issuerPath     = cmPath + "/namespaces/pillion-system/issuers/pillion-ca"
	certPath       = cmPath + "/namespaces/pillion-system/certificates/pillion"
)

// certified is a cluster with cert-manager at a moment. All of it is the same at every run: an Ed25519
// signature is a function of key and message.
type certified struct {
	objectsAPI
	now      time.Time
	ca, leaf []byte // PEM
	endpoint string
}

func newCertified(t *testing.T, now time.Time) *certified {
	t.Helper()
	ca, caKey := clitest.SignCertificate(t, 1, &x509.Certificate{
		Subject: pkix.Name{CommonName: "pillion-ca"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(9, 0, 0),
	}, nil, nil)
	leaf, key := clitest.SignCertificate(t, 2, &x509.Certificate{
		DNSNames: []string{"pillion.pillion-system.svc"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore:   now.AddDate(0, 0, -10), NotAfter: now.AddDate(0, 0, 80),
	}, ca, caKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := &certified{
		now: now, ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}),
		leaf: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}),
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	c.serve(t, c.leaf, keyPEM)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "pillion-system", Name: name, Annotations: map[string]string{certmanagerv1.WantInjectAnnotation: "pillion-system/pillion"}}
	}
	client := admissionregistrationv1.WebhookClientConfig{
		CABundle: c.ca, Service: &admissionregistrationv1.ServiceReference{Namespace: "pillion-system", Name: "pillion"},
	}
	c.objectsAPI = objectsAPI{
		mutatingPath: admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta("pillion"), Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "namespace.mutate.pillion.dev", ClientConfig: client}, {Name: "pod.mutate.pillion.dev", ClientConfig: client},
		}},
		validatingPath: admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta("pillion"), Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "namespace.validate.pillion.dev", ClientConfig: client}, {Name: "pod.validate.pillion.dev", ClientConfig: client},
		}},
		secretPath: corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: c.leaf, corev1.TLSPrivateKeyKey: keyPEM}},
		slicesPath: discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{c.slice(t)}},
		cmPath:     metav1.APIResourceList{GroupVersion: "cert-manager.io/v1"},
		issuerPath: certmanagerv1.Issuer{ObjectMeta: meta("pillion-ca"), Status: certmanagerv1.IssuerStatus{Conditions: []certmanagerv1.IssuerCondition{
			{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue, Reason: "KeyPairVerified", Message: "Signing CA verified"},
		}}},
		certPath: certmanagerv1.Certificate{
			ObjectMeta: meta("pillion"),
			Spec:       certmanagerv1.CertificateSpec{SecretName: "pillion-tls", IssuerRef: cmmeta.IssuerReference{Name: "pillion-ca"}},
			Status: certmanagerv1.CertificateStatus{
				Conditions:  []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, Reason: "Ready"}},
				NotAfter:    &metav1.Time{Time: leaf.NotAfter},
				RenewalTime: &metav1.Time{Time: now.AddDate(0, 0, 50)},
			},
		},
	}
	return c
}

// manageItself makes it the overlay without cert-manager, with the component advise.
func (c *certified) manageItself() {
	for _, path := range []string{cmPath, issuerPath, certPath} {
		delete(c.objectsAPI, path)
	}
	validating := c.objectsAPI[validatingPath].(admissionregistrationv1.ValidatingWebhookConfiguration)
	advising := *validating.DeepCopy()
	advising.Webhooks[0].Name, advising.Webhooks[1].Name = "namespace.advise.pillion.dev", "pod.advise.pillion.dev"
	c.objectsAPI[advisingPath] = advising
	clear(validating.Annotations)
	clear(c.objectsAPI[mutatingPath].(admissionregistrationv1.MutatingWebhookConfiguration).Annotations)
	c.objectsAPI[deploymentPath] = appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{"serve", "--tls-secret=pillion-system/pillion-tls"}}}},
	}}}
}

// serve presents the pair at an endpoint.
func (c *certified) serve(t *testing.T, cert, key []byte) {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	c.endpoint = server.Listener.Addr().String()
}

func (c *certified) slice(t *testing.T) discoveryv1.EndpointSlice {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", c.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return discoveryv1.EndpointSlice{
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{address.IP.String()}},
			{Addresses: []string{"127.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(address.Port))}, {Name: new("other"), Port: new(int32(1))}},
	}
}

// kubeconfig serves the objects and says where.
func (c *certified) kubeconfig(t *testing.T) string { return clitest.Kubeconfig(t, c.objectsAPI) }

// TestCertsGolden compares the output for users and for programs with the golden files. The help of
// certs describes their content.
func TestCertsGolden(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*certified){
		"well": func(*certified) {},
		"own": func(c *certified) {
			for _, path := range []string{cmPath, issuerPath, certPath} {
				delete(c.objectsAPI, path)
			}
			for _, path := range []string{mutatingPath, validatingPath} {
				switch object := c.objectsAPI[path].(type) {
				case admissionregistrationv1.MutatingWebhookConfiguration:
					clear(object.Annotations)
				case admissionregistrationv1.ValidatingWebhookConfiguration:
					clear(object.Annotations)
					object.Webhooks[1].ClientConfig.CABundle = nil
				}
			}
		},
		"outside": func(c *certified) {
			for _, path := range []string{cmPath, issuerPath, certPath, secretPath} {
				delete(c.objectsAPI, path)
			}
			client := admissionregistrationv1.WebhookClientConfig{CABundle: c.ca, URL: new("https://" + c.endpoint + "/mutate")}
			mutating := c.objectsAPI[mutatingPath].(admissionregistrationv1.MutatingWebhookConfiguration)
			mutating.Webhooks[0].ClientConfig, mutating.Webhooks[1].ClientConfig = client, client
			clear(mutating.Annotations)
			validating := c.objectsAPI[validatingPath].(admissionregistrationv1.ValidatingWebhookConfiguration)
			validating.Webhooks[0].ClientConfig, validating.Webhooks[1].ClientConfig = client, client
			clear(validating.Annotations)
		},
		"self-managed": (*certified).manageItself,
		"self-managed-not-yet": func(c *certified) {
			c.manageItself()
			for _, path := range []string{mutatingPath, validatingPath, advisingPath} {
				switch object := c.objectsAPI[path].(type) {
				case admissionregistrationv1.MutatingWebhookConfiguration:
					object.Webhooks[0].ClientConfig.CABundle, object.Webhooks[1].ClientConfig.CABundle = nil, nil
				case admissionregistrationv1.ValidatingWebhookConfiguration:
					object.Webhooks[0].ClientConfig.CABundle, object.Webhooks[1].ClientConfig.CABundle = nil, nil
				}
			}
			delete(c.objectsAPI, secretPath)
			c.objectsAPI[slicesPath] = discoveryv1.EndpointSliceList{}
		},
		"nothing":   func(c *certified) { clear(c.objectsAPI) },
		"forbidden": func(c *certified) { c.objectsAPI[secretPath], c.objectsAPI[slicesPath] = nil, nil },
		"no-rights": func(c *certified) {
			for path := range c.objectsAPI {
				c.objectsAPI[path] = nil
			}
		},
		"no-cert-manager": func(c *certified) {
			c.objectsAPI[slicesPath] = discoveryv1.EndpointSliceList{}
			for _, path := range []string{cmPath, issuerPath, certPath} {
				delete(c.objectsAPI, path)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCertified(t, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
			change(c)
			o := &certsOptions{configuration: "pillion", now: func() time.Time { return c.now }}
			o.Flags(&cobra.Command{})
			o.Kubeconfig = c.kubeconfig(t)
			report, err := o.readReport(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var asJSON bytes.Buffer
			if err := cli.WriteJSON(&asJSON, report); err != nil {
				t.Fatal(err)
			}
			compare := func(kind, got string) {
				golden.File(t, filepath.Join("testdata", "certs", name+kind), []byte(strings.ReplaceAll(got, c.endpoint, "192.0.2.10:8443")))
			}
			compare(".txt", chainText(report, c.now, cli.TextWidth))
			compare(".json", asJSON.String())
		})
	}
}

func TestCertsExitCode(t *testing.T) {
	t.Parallel()
	c := newCertified(t, time.Now())
	var out bytes.Buffer
	if code := run([]string{"certs", "--kubeconfig", c.kubeconfig(t)}, nil, &out, &out); code != exitOK {
		t.Errorf("all is well, and the exit code is %d:\n%s", code, &out)
	}
	delete(c.objectsAPI, secretPath)
	out.Reset()
	if code := run([]string{"certs", "--kubeconfig", c.kubeconfig(t), "--endpoint", c.endpoint, "-o", "json"}, nil, &out, &out); code != exitProblem {
		t.Errorf("the Secret is missing, and the exit code is %d:\n%s", code, &out)
	}
	for _, args := range [][]string{{"certs", "x"}, {"certs", "-o", "table"}} {
		if code := run(args, nil, &out, &out); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
	if code := run([]string{"certs", "--kubeconfig", filepath.Join(t.TempDir(), "none")}, nil, &out, &out); code != exitProblem {
		t.Errorf("without a cluster, exit code %d", code)
	}
}
