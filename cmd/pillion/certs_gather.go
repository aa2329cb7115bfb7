// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

// dialWithin is how long an endpoint may take to present its certificate: from
// outside of a cluster most cannot be reached at all.
const dialWithin = 3 * time.Second

// reader gets objects by their paths.
type reader struct{ client *rest.RESTClient }

func newReader(config *rest.Config) (*reader, error) {
	config = rest.CopyConfig(config)
	known := runtime.NewScheme() // errors alone: the clients of all API groups would double the program
	known.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	config.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	return &reader{client}, err
}

// get decodes the object at the path.
func (r *reader) get(ctx context.Context, into any, query string, path ...string) error {
	request := r.client.Get().AbsPath(path...).SetHeader("Accept", "application/json")
	if query != "" {
		request = request.Param("labelSelector", query)
	}
	raw, err := request.Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// gathering collects what certs judges.
type gathering struct {
	*certs.Chain
	reader *reader
}

// found reads an object and says whether it is there. Of what may not be read,
// a note is made.
func (g *gathering) found(ctx context.Context, into any, what string, path ...string) (bool, error) {
	switch err := g.reader.get(ctx, into, "", path...); {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		g.Unread = append(g.Unread, "you may not read "+what+", so it is left out")
		return false, nil
	default:
		return false, fmt.Errorf("reading %s: %w", what, err)
	}
}

func (o *certsOptions) gather(ctx context.Context, r *reader) (*certs.Chain, error) {
	g := &gathering{Chain: &certs.Chain{Now: o.now(), Host: manifests.ServiceHost}, reader: r}
	service, err := g.configurations(ctx, o.configuration)
	if err != nil {
		return nil, err
	}
	g.SecretName = o.namespace + "/" + manifests.TLSSecret
	for _, w := range g.Configurations {
		if namespace, name, ok := strings.Cut(w.InjectFrom, "/"); ok && g.Certificate == nil {
			if err := g.certManager(ctx, namespace, name); err != nil {
				return nil, err
			}
		}
	}
	secret := &corev1.Secret{}
	namespace, name, _ := strings.Cut(g.SecretName, "/")
	switch ok, err := g.found(ctx, secret, "the Secret "+g.SecretName, "/api/v1/namespaces", namespace, "secrets", name); {
	case err != nil:
		return nil, err
	case ok:
		g.Secret = secret
	}
	endpoints := o.endpoints
	if len(endpoints) == 0 && service != nil {
		if endpoints, err = g.endpoints(ctx, service); err != nil {
			return nil, err
		}
	}
	g.Served = ask(ctx, g.Host, endpoints)
	return g.Chain, nil
}

// configurations reads both; the Service is the one that their webhooks name.
func (g *gathering) configurations(ctx context.Context, name string) (*admissionregistrationv1.ServiceReference, error) {
	const api = "/apis/admissionregistration.k8s.io/v1"
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	foundMutating, err := g.found(ctx, mutating, "the MutatingWebhookConfiguration "+name, api, "mutatingwebhookconfigurations", name)
	if err != nil {
		return nil, err
	}
	foundValidating, err := g.found(ctx, validating, "the ValidatingWebhookConfiguration "+name, api, "validatingwebhookconfigurations", name)
	if err != nil {
		return nil, err
	}
	var service *admissionregistrationv1.ServiceReference
	anchor := func(webhook string, c admissionregistrationv1.WebhookClientConfig) certs.Anchor {
		a := certs.Anchor{Webhook: webhook, Host: manifests.ServiceHost, Bundle: c.CABundle}
		if c.Service != nil {
			service = c.Service
			a.Host = service.Name + "." + service.Namespace + ".svc"
			g.Host = a.Host
		}
		return a
	}
	m := certs.WebhookConfiguration{Kind: "MutatingWebhookConfiguration", Name: name, Found: foundMutating, InjectFrom: mutating.Annotations[certmanagerv1.WantInjectAnnotation]}
	for _, w := range mutating.Webhooks {
		m.Anchors = append(m.Anchors, anchor(w.Name, w.ClientConfig))
	}
	v := certs.WebhookConfiguration{Kind: "ValidatingWebhookConfiguration", Name: name, Found: foundValidating, InjectFrom: validating.Annotations[certmanagerv1.WantInjectAnnotation]}
	for _, w := range validating.Webhooks {
		v.Anchors = append(v.Anchors, anchor(w.Name, w.ClientConfig))
	}
	g.Configurations = []certs.WebhookConfiguration{m, v}
	return service, nil
}

// certManager reads the Certificate and the issuer that it names.
func (g *gathering) certManager(ctx context.Context, namespace, name string) error {
	const api = "/apis/cert-manager.io/v1"
	certificate := &certmanagerv1.Certificate{}
	var versions map[string]any
	known, err := g.found(ctx, &versions, "what cert-manager offers", api)
	if err != nil || !known {
		return err
	}
	g.CertManager = true
	ok, err := g.found(ctx, certificate, "the Certificate "+namespace+"/"+name, api, "namespaces", namespace, "certificates", name)
	if err != nil || !ok {
		return err
	}
	g.Certificate = certificate
	g.SecretName = namespace + "/" + certificate.Spec.SecretName
	var issuer certmanagerv1.GenericIssuer = &certmanagerv1.Issuer{}
	path := []string{api, "namespaces", namespace, "issuers", certificate.Spec.IssuerRef.Name}
	if certificate.Spec.IssuerRef.Kind == certmanagerv1.ClusterIssuerKind {
		issuer = &certmanagerv1.ClusterIssuer{}
		path = []string{api, "clusterissuers", certificate.Spec.IssuerRef.Name}
	}
	ok, err = g.found(ctx, issuer, "the issuer "+certificate.Spec.IssuerRef.Name, path...)
	if ok {
		g.Issuer = issuer
	}
	return err
}

// endpoints are the addresses behind the Service that are ready.
func (g *gathering) endpoints(ctx context.Context, service *admissionregistrationv1.ServiceReference) ([]string, error) {
	slices := &discoveryv1.EndpointSliceList{}
	err := g.reader.get(ctx, slices, discoveryv1.LabelServiceName+"="+service.Name, "/apis/discovery.k8s.io/v1/namespaces", service.Namespace, "endpointslices")
	if apierrors.IsForbidden(err) {
		g.Unread = append(g.Unread, "you may not read the endpoints of the Service, so none of them is asked")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the endpoints of the Service %s: %w", service.Name, err)
	}
	return readyAddresses(slices.Items), nil
}

func readyAddresses(all []discoveryv1.EndpointSlice) []string {
	var addresses []string
	for _, slice := range all {
		for _, port := range slice.Ports {
			if port.Port == nil || port.Name == nil || *port.Name != manifests.WebhookPortName {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if ready := endpoint.Conditions.Ready; ready != nil && !*ready || len(endpoint.Addresses) == 0 {
					continue
				}
				addresses = append(addresses, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port))))
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}

// ask has every endpoint present its certificate, all at the same time.
func ask(ctx context.Context, host string, addresses []string) []certs.Endpoint {
	endpoints := make([]certs.Endpoint, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() { endpoints[i] = presented(ctx, host, address) })
	}
	all.Wait()
	return endpoints
}

func presented(ctx context.Context, host, address string) certs.Endpoint {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	// What is presented is judged, not trusted.
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // see above
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", dialWithin)
		}
		return certs.Endpoint{Address: address, Err: err}
	}
	defer conn.Close()
	return certs.Endpoint{Address: address, Chain: conn.(*tls.Conn).ConnectionState().PeerCertificates}
}
