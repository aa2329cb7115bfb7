// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/manifests"
)

// readyEndpoints returns the number of ready endpoints of a Service.
func (l *podLister) readyEndpoints(ctx context.Context, namespace, service string) (int, error) {
	var found []discoveryv1.EndpointSlice
	client := l.Resource(discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).Namespace(namespace)
	if err := allOf(ctx, l, client, discoveryv1.LabelServiceName+"="+service, &found); err != nil {
		return 0, err
	}
	n := 0
	for _, slice := range found {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n, nil
}

// unanswered explains the effect of webhooks that do not answer.
const unanswered = "If Pillion does not answer, the API server denies pods for which a webhook has failurePolicy Fail, and accepts others without sidecars."

// noEndpointMessage explains the effect of a Service without ready endpoints.
func noEndpointMessage(service *admissionregistrationv1.ServiceReference) string {
	return fmt.Sprintf("The Service %s in the namespace %s has no ready endpoint. See why: `kubectl -n %[2]s get deployment,pods -l app.kubernetes.io/name=%[3]s`. "+
		"%[4]s", service.Name, service.Namespace, manifests.Name, unanswered)
}

// checkAnswers checks whether a server answers at the address at which the API server calls Pillion. If none does, it returns the
// problem as a sentence. If that is unknown, it returns the reason in unsure. Both are "" if a server answers, and if no webhook
// is installed.
func (l *podLister) checkAnswers(ctx context.Context, own *admissionregistrationv1.MutatingWebhookConfiguration) (problem, unsure string) {
	for i := range own.Webhooks {
		switch c := &own.Webhooks[i].ClientConfig; {
		case c.Service != nil:
			ready, err := l.readyEndpoints(ctx, c.Service.Namespace, c.Service.Name)
			if apierrors.IsForbidden(err) && c.Service.Namespace == l.system && c.Service.Name == manifests.Name {
				if d, failed := l.readDeployment(ctx, manifests.Name); failed == nil && d.Ready > 0 { // which more users may read
					ready, err = d.Ready, nil
				}
			}
			switch {
			case err != nil:
				return "", fmt.Sprintf("Whether Pillion has a ready endpoint is unknown: %s.", whyNot(err, "endpointslices in the namespace "+c.Service.Namespace))
			case ready == 0:
				return noEndpointMessage(c.Service), ""
			}
			return "", ""
		case c.URL != nil:
			switch listens, err := l.isListening(ctx, *c.URL); {
			case err != nil:
				return "", fmt.Sprintf("Whether Pillion has a ready endpoint is unknown: %s is not reachable from here (%s), and perhaps not from the API server. %s", *c.URL, err, unanswered)
			case !listens:
				return fmt.Sprintf("Nothing listens at %s, where the API server calls Pillion. %s", *c.URL, unanswered), ""
			}
			return "", ""
		}
	}
	return "", ""
}

// isListening reports whether a server listens at a URL. The error is the reason why that is
// unknown. If the host rejects the connection, no server listens. A loopback address means the
// API server's machine, so the result holds only if this program runs on that machine.
func (l *podLister) isListening(ctx context.Context, address string) (bool, error) {
	u, err := url.Parse(address)
	if err != nil {
		return false, err
	}
	if server, err := url.Parse(l.config.Host); isLoopback(u.Hostname()) && (err != nil || !isLoopback(server.Hostname())) {
		return false, errors.New("it is the API server's own machine")
	}
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return false, nil
	case err != nil:
		return false, err
	}
	conn.Close()
	return true, nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
