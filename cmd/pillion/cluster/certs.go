// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
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

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

// dialWithin is the time limit for an endpoint to present its certificate. From outside of a
// cluster, most endpoints are unreachable.
const dialWithin = 3 * time.Second

// chainTime limits the whole command.
const chainTime = 15 * time.Second

// gathering collects the data that the command certs checks.
type gathering struct {
	*certs.Chain
	cluster   *Client
	addresses []string // of webhooks that API servers call by URL
}

// objectExists reports whether an object exists, given the error of reading it. If the user is not allowed to read it, it adds a note
// and returns false. It returns any other error. What names the object in words.
func (g *gathering) objectExists(err error, what string) (bool, error) {
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		g.Unread = append(g.Unread, what+" is not shown, because you are not allowed to read it")
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s: %w", what, err)
	}
	return true, nil
}

// Chain reads everything between the issuer of Pillion's certificate and the API servers. It
// connects to the endpoints (HOST:PORT). If there are none, it connects to those of the Service, or to the addresses of webhooks
// that have a URL.
func (c *Client) Chain(ctx context.Context, configuration string, endpoints []string, now time.Time) (*certs.Chain, error) {
	ctx, cancel := context.WithTimeout(ctx, chainTime)
	defer cancel()
	chain, err := c.gatherChain(ctx, configuration, endpoints, now)
	return chain, NoAnswer(err)
}

func (c *Client) gatherChain(ctx context.Context, configuration string, endpoints []string, now time.Time) (*certs.Chain, error) {
	g := &gathering{Chain: &certs.Chain{Now: now, Host: manifests.ServiceHost}, cluster: c}
	service, err := g.readConfigurations(ctx, configuration)
	if err != nil {
		return nil, err
	}
	namespace, name := c.system, manifests.TLSSecret
	for _, w := range g.Configurations {
		if from, certificate, ok := strings.Cut(w.InjectFrom, "/"); ok && g.Certificate == nil && !w.Optional {
			if err := g.certManager(ctx, from, certificate); err != nil {
				return nil, err
			}
		}
	}
	if g.Certificate != nil {
		namespace, name = g.Certificate.Namespace, g.Certificate.Spec.SecretName
	}
	g.SecretName = namespace + "/" + name
	secret, err := getObject[corev1.Secret](ctx, c.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace), name)
	switch ok, err := g.objectExists(err, "the Secret "+g.SecretName); {
	case err != nil:
		return nil, err
	case ok:
		g.Secret = secret
	}
	if err := g.readDeployment(ctx); err != nil {
		return nil, err
	}
	g.Outside = service == nil && len(g.addresses) > 0
	switch {
	case len(endpoints) > 0:
	case service != nil:
		if endpoints, err = g.readEndpoints(ctx, service); err != nil {
			return nil, err
		}
	default:
		slices.Sort(g.addresses)
		endpoints = slices.Compact(g.addresses)
	}
	g.Served = presentedBy(ctx, g.Host, endpoints)
	return g.Chain, nil
}

// readDeployment finds out whether Pillion is configured to create its certificate. This is
// skipped if the user is not allowed to read the Deployment.
func (g *gathering) readDeployment(ctx context.Context) error {
	pod, err := g.cluster.ownPod(ctx)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading the Deployment %s: %w", manifests.Name, err)
	}
	for _, c := range pod.Containers {
		g.SelfManaged = g.SelfManaged || slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--tls-secret") })
	}
	return nil
}

// readConfigurations reads all webhook configurations of Pillion. It returns the Service that their webhooks name, or nil.
func (g *gathering) readConfigurations(ctx context.Context, name string) (service *admissionregistrationv1.ServiceReference, err error) {
	note := func(w *certs.WebhookConfiguration, webhook string, c admissionregistrationv1.WebhookClientConfig) {
		a := certs.CABundleOf(webhook, c)
		switch {
		case c.Service != nil:
			service = c.Service
		case c.URL != nil:
			if u, err := url.Parse(*c.URL); err == nil {
				g.addresses = append(g.addresses, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
			}
		}
		a.Host = cmp.Or(a.Host, manifests.ServiceHost)
		g.Host = a.Host
		w.CABundles = append(w.CABundles, a)
	}
	for _, c := range certs.AllConfigurations() {
		w := certs.WebhookConfiguration{Kind: c.Kind(), Name: c.Named(name), Optional: c == certs.Advising}
		// Both kinds have the same relevant fields.
		config, err := getObject[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, g.cluster.Resource(c.Resource()), w.Name)
		w.Unread = apierrors.IsForbidden(err)
		ok, err := g.objectExists(err, "the "+w.Kind+" "+w.Name)
		if err != nil {
			return nil, err
		}
		if !ok && w.Optional {
			continue
		}
		w.Found, w.InjectFrom = ok, config.Annotations[certmanagerv1.WantInjectAnnotation]
		for _, webhook := range config.Webhooks {
			note(&w, webhook.Name, webhook.ClientConfig)
		}
		g.Configurations = append(g.Configurations, w)
	}
	return service, nil
}

// certManager reads the Certificate and its issuer.
func (g *gathering) certManager(ctx context.Context, namespace, name string) error {
	v1 := certmanagerv1.SchemeGroupVersion
	// If the cluster has no such resource type, the API server answers without a Status.
	certificate, err := getObject[certmanagerv1.Certificate](ctx, g.cluster.Resource(v1.WithResource("certificates")).Namespace(namespace), name)
	g.CertManager = !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if ok, err := g.objectExists(err, "the Certificate "+namespace+"/"+name); err != nil || !ok {
		return err
	}
	g.Certificate = certificate
	var issuer certmanagerv1.GenericIssuer
	ref := certificate.Spec.IssuerRef
	if ref.Kind == certmanagerv1.ClusterIssuerKind {
		issuer, err = getObject[certmanagerv1.ClusterIssuer](ctx, g.cluster.Resource(v1.WithResource("clusterissuers")), ref.Name)
	} else {
		issuer, err = getObject[certmanagerv1.Issuer](ctx, g.cluster.Resource(v1.WithResource("issuers")).Namespace(namespace), ref.Name)
	}
	ok, err := g.objectExists(err, "the issuer "+ref.Name)
	if ok {
		g.Issuer = issuer
	}
	return err
}

// readEndpoints adds the ready addresses of the Service.
func (g *gathering) readEndpoints(ctx context.Context, service *admissionregistrationv1.ServiceReference) ([]string, error) {
	client := g.cluster.Resource(discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).Namespace(service.Namespace)
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if apierrors.IsForbidden(err) {
		g.Unread = append(g.Unread, "certs connected to no endpoint, because you are not allowed to read the endpoints of the Service")
		return nil, nil
	}
	all := &discoveryv1.EndpointSliceList{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the endpoints of the Service %s: %w", service.Name, err)
	}
	ready := readyAddresses(all.Items)
	if len(ready) == 0 {
		g.Deserted = service.Namespace + "/" + service.Name
	}
	return ready, nil
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

// presentedBy connects to all endpoints at the same time and returns the certificates that
// they present.
func presentedBy(ctx context.Context, host string, addresses []string) []certs.Endpoint {
	endpoints := make([]certs.Endpoint, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() { endpoints[i] = dialEndpoint(ctx, host, address) })
	}
	all.Wait()
	return endpoints
}

func dialEndpoint(ctx context.Context, host, address string) certs.Endpoint {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	// The certificate is only inspected, not trusted.
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
