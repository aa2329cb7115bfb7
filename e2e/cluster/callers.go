// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// admissionConfiguration makes an API server authenticate to webhooks. It contains the file's
// path twice.
const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %[1]s
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %[1]s
`

// StartGuarded runs a Pillion that authenticates callers as its flags say, and that is
// connected to the cluster. It uses HTTP/1.1, as API servers do for a Service.
func (c *Cluster) StartGuarded(ctx context.Context, binary string, templates []string, flags ...string) (*Pillion, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	kubeconfig, err := c.kubeconfigOf(ctx, pillionServiceAccount)
	if err != nil {
		return nil, err
	}
	return c.startPillion(ctx, binary, templates, []string{"GODEBUG=http2server=0"}, append(flags, "--kubeconfig", kubeconfig)...)
}

// StartGuardedService is StartGuarded behind a Service with the name in the serving
// certificate.
func (c *Cluster) StartGuardedService(ctx context.Context, service types.NamespacedName, binary string, templates []string, flags ...string) (*Pillion, error) {
	host, err := machineAddress()
	if err != nil {
		return nil, err
	}
	certFile, keyFile, err := c.Authority.writeServing(c.dir, "service-"+shortID(), service.Name+"."+service.Namespace+".svc")
	if err != nil {
		return nil, err
	}
	p, err := c.StartGuarded(ctx, binary, templates, append(flags,
		"--listen", net.JoinHostPort(host, "0"), "--tls-cert-file", certFile, "--tls-key-file", keyFile)...)
	if err != nil {
		return nil, err
	}
	return p, c.createService(ctx, service, p.Endpoint.URL)
}

// createService creates a Service with one endpoint, the address in the URL.
func (c *Cluster) createService(ctx context.Context, name types.NamespacedName, at string) error {
	u, err := url.Parse(at)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		return err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name.Name, Namespace: name.Namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name.Name, Namespace: name.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: name.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{u.Hostname()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(port))}},
	}
	return errors.Join(
		createOrUpdate(ctx, c.Client.CoreV1().Services(name.Namespace), service),
		createOrUpdate(ctx, c.Client.DiscoveryV1().EndpointSlices(name.Namespace), slice))
}

// StartCallingAPIServer runs another kube-apiserver that authenticates to the webhooks at
// these hosts (HOST:PORT, or a Service's NAME.NAMESPACE.svc).
func (c *Cluster) StartCallingAPIServer(ctx context.Context, users map[string]*clientcmdapi.AuthInfo, flags ...string) (*APIServer, error) {
	name := "callers-" + shortID()
	config := clientcmdapi.NewConfig()
	config.AuthInfos = users
	kubeconfig, admission := c.Path(name+".kubeconfig"), c.Path(name+".yaml")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	if err := os.WriteFile(admission, fmt.Appendf(nil, admissionConfiguration, kubeconfig), 0o600); err != nil {
		return nil, err
	}
	return c.StartAPIServer(ctx, append(flags, "--admission-control-config-file", admission)...)
}

// Answer is a webhook's answer.
type Answer struct {
	Status int
	Body   string
}

// Post sends a body to a path of the endpoint, with a token.
func (e Endpoint) Post(ctx context.Context, path, token string, body []byte) (Answer, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.CA)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, string(text)}, err
}
