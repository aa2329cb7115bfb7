// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/inject/status"
	"github.com/pillion-dev/pillion/manifests"
)

// webhooks reads the webhooks that are called for pods.
func (k *look) webhooks(ctx context.Context) error {
	k.mutation, k.validation = k.podLister.mutation(ctx, k.note), k.podLister.validation(ctx, k.note)
	k.awaited = map[string]string{}
	of := k.labels(ctx)
	optedIn := func(namespace string) (map[string]string, bool) { // treats every namespace as opted in
		labels, known := of(namespace)
		if known && namespace != k.system {
			with := map[string]string{}
			maps.Copy(with, labels)
			with[inject.LabelInject] = inject.Enabled
			return with, known
		}
		return labels, known
	}
	for _, loop := range status.Loops(k.mutation, k.validation, k.system, optedIn) {
		k.awaited[loop.Namespace] = fmt.Sprintf("the %s runs there and is called for Pillion's own pods; if each waited for the other, neither would start", loop.Webhook)
	}
	return k.installed(ctx, k.mutation)
}

// installed finds Pillion's own webhooks in the list, or reads only them if the list is
// unknown.
func (k *look) installed(ctx context.Context, m *status.Mutation) error {
	own := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if i := slices.IndexFunc(m.Webhooks, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool { return c.Name == m.Own }); i >= 0 {
		own = &m.Webhooks[i]
	} else if m.Webhooks == nil {
		var err error
		resource := admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
		own, err = get[admissionregistrationv1.MutatingWebhookConfiguration](ctx, k.Resource(resource), manifests.Name)
		switch {
		case apierrors.IsForbidden(err):
			k.own.Unknown = true
			k.answering(ctx, own)
			k.note("You are not allowed to get mutatingwebhookconfigurations, so whether the API server calls Pillion is unknown.")
			return nil
		case err != nil && !apierrors.IsNotFound(err):
			return err
		}
	}
	k.own.Entries, k.own.Installed = explain.MutatingEntries(own), own.CreationTimestamp.Time
	if len(k.own.Entries) == 0 && len(m.OwnPolicies()) > 0 {
		k.own.Unknown = true // policies that pillion policy wrote inject the pods
	}
	k.answering(ctx, own)
	return nil
}

// answering notes what is wrong or unknown about the installed webhooks. In both cases, the
// report suggests no restarts.
func (k *look) answering(ctx context.Context, own *admissionregistrationv1.MutatingWebhookConfiguration) {
	doubt := func(format string, args ...any) {
		k.report.Doubts = append(k.report.Doubts, fmt.Sprintf(format, args...))
	}
	if k.own.Unknown {
		doubt("It is unknown which webhooks of Pillion are installed, or policies inject instead of them.")
		return
	}
	if len(own.Webhooks) == 0 {
		k.report.Problems = append(k.report.Problems, "No webhook of Pillion is installed, so nothing is injected.")
	}
	for i := range own.Webhooks {
		c := &own.Webhooks[i].ClientConfig
		switch {
		case c.Service != nil:
			ready, err := k.readyEndpoints(ctx, c.Service.Namespace, c.Service.Name)
			if err != nil {
				doubt("Whether Pillion has a ready endpoint is unknown: %s.", whyNot(err, "endpointslices in the namespace "+c.Service.Namespace))
			} else if ready == 0 {
				k.report.Problems = append(k.report.Problems, nobodyAnswers(c.Service))
			}
		case c.URL != nil:
			switch listens, err := k.listens(ctx, *c.URL); {
			case listens:
				continue
			case err == nil:
				k.report.Problems = append(k.report.Problems, fmt.Sprintf("Nothing listens at %s, where the API server calls Pillion. %s", *c.URL, unanswered))
			default:
				doubt("Whether Pillion has a ready endpoint is unknown: %s is not reachable from here (%s), and perhaps not from the API server. %s", *c.URL, err, unanswered)
			}
		default:
			continue
		}
		return
	}
}

// listens reports whether a server listens at a URL. The error is the reason why that is
// unknown. If the host rejects the connection, no server listens. A loopback address means the
// API server's machine, so the result holds only if this program runs on that machine.
func (k *look) listens(ctx context.Context, address string) (bool, error) {
	u, err := url.Parse(address)
	if err != nil {
		return false, err
	}
	if server, err := url.Parse(k.config.Host); loopback(u.Hostname()) && (err != nil || !loopback(server.Hostname())) {
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

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
