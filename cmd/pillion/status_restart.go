// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/inject/survey"
	"github.com/pillion-dev/pillion/manifests"
)

// answering notes what is wrong with what is installed, or not known of it: nothing is
// advised then.
func (k *look) answering(ctx context.Context, own *admissionregistrationv1.MutatingWebhookConfiguration) {
	doubt := func(format string, args ...any) {
		k.report.Doubts = append(k.report.Doubts, fmt.Sprintf(format, args...))
	}
	if k.own.Unknown {
		doubt("Which webhooks of Pillion's are installed is not known, or its policies inject.")
		return
	}
	if len(own.Webhooks) == 0 {
		k.report.Problems = append(k.report.Problems, "No webhook of Pillion's is installed, so nothing is injected.")
	}
	for i := range own.Webhooks {
		c := &own.Webhooks[i].ClientConfig
		switch {
		case c.Service != nil:
			ready, err := k.readyEndpoints(ctx, c.Service.Namespace, c.Service.Name)
			if err != nil {
				doubt("Whether anybody answers for Pillion is not known: %s.", whyNot(err, "endpointslices in the namespace "+c.Service.Namespace))
			} else if ready == 0 {
				k.report.Problems = append(k.report.Problems, nobodyAnswers(c.Service))
			}
		case c.URL != nil:
			switch listens, err := k.listens(ctx, *c.URL); {
			case listens:
				continue
			case err == nil:
				k.report.Problems = append(k.report.Problems, fmt.Sprintf("Nobody listens at %s, where the API server calls Pillion. %s", *c.URL, unanswered))
			default:
				doubt("Whether anybody answers for Pillion is not known: %s cannot be reached from here (%s), and perhaps from the API server. %s", *c.URL, err, unanswered)
			}
		default:
			continue
		}
		return
	}
}

// unanswered is what it means that nobody answers.
const unanswered = "Where nobody answers, the API server refuses a pod that a webhook with failurePolicy Fail is for, and lets others through without sidecars."

// nobodyAnswers is what it means that no endpoint of Pillion's Service is ready.
func nobodyAnswers(service *admissionregistrationv1.ServiceReference) string {
	return fmt.Sprintf("The Service %s in the namespace %s has no endpoint that is ready: see the pods there. "+
		"%s", service.Name, service.Namespace, unanswered)
}

// whatFollows adds to the error that there are no templates what becomes of new pods while
// Pillion's webhooks are there.
func (l *podLister) whatFollows(ctx context.Context, err error) error {
	if _, ok := errors.AsType[noTemplatesError](err); !ok {
		return err
	}
	resource := admissionregistrationv1.SchemeGroupVersion.WithResource
	mutating, merr := get[admissionregistrationv1.MutatingWebhookConfiguration](ctx, l.Resource(resource("mutatingwebhookconfigurations")), manifests.Name)
	validating, verr := get[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, l.Resource(resource("validatingwebhookconfigurations")), manifests.Name)
	var names []string
	becomes := "start without sidecars (failurePolicy Ignore)"
	for _, e := range slices.Concat(explain.MutatingEntries(mutating), explain.ValidatingEntries(validating)) {
		names = append(names, e.Name)
		if e.Type != explain.Shadow && (e.FailurePolicy == nil || *e.FailurePolicy == admissionregistrationv1.Fail) {
			becomes = "are denied (failurePolicy Fail)"
		}
	}
	if len(names) == 0 || merr != nil && !apierrors.IsNotFound(merr) || verr != nil && !apierrors.IsNotFound(verr) {
		return err
	}
	return fmt.Errorf("%w. Pillion's webhooks are still installed: no new replica of Pillion can start, and while none answers, new pods that opted in %s. "+
		"Put the ConfigMap back, or delete the webhook configurations %s", err, becomes, manifests.Name)
}

// listens reports whether somebody listens at a URL; the error is why that is not known. A host that refuses
// connections is known not to. What is this machine for the API server is this one here only if it runs here.
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

// ownedKind is a kind of owners.
type ownedKind struct {
	name string
	schema.GroupVersionResource
}

// consider finds out which owners of a namespace's pods to restart.
func (k *look) consider(ctx context.Context, namespace string, count *survey.Count) error {
	if len(k.report.Problems)+len(k.report.Doubts) > 0 {
		return nil
	}
	if why := count.Fails(); why != "" {
		count.Hold("", why)
		return nil
	}
	var limits *fit.Limits
	for _, kind := range []ownedKind{
		{"Deployment", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}},
		{"StatefulSet", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}},
		{"DaemonSet", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}},
	} {
		names := count.Candidates(kind.name)
		if len(names) == 0 {
			continue
		}
		if limits == nil {
			all, err := k.limits(ctx, namespace)
			if err != nil {
				count.Hold("", "whether the limits of the namespace allow new pods is not known: "+err.Error())
				return nil //nolint:nilerr // it is told
			}
			limits = &all
		}
		room := func(labels map[string]string, pod []byte, n int) string { return k.fits.Room(labels, *limits, pod, n) }
		err := k.pages(ctx, k.Resource(kind.GroupVersionResource).Namespace(namespace), "", func(object *unstructured.Unstructured) error {
			if !slices.Contains(names, object.GetName()) {
				return nil
			}
			object.SetAPIVersion("apps/v1") // which an item of a list need not say
			object.SetKind(kind.name)
			text, err := object.MarshalJSON()
			if err == nil {
				err = count.Consider(text, room)
			}
			return err
		}, func() {})
		switch {
		case apierrors.IsForbidden(err):
			count.Hold(kind.name, fmt.Sprintf("you may not list %s in the namespace %s", kind.Resource, namespace))
		case err != nil:
			return err
		}
	}
	return nil
}

// limits are the LimitRanges and quotas of a namespace.
func (l *podLister) limits(ctx context.Context, namespace string) (all fit.Limits, err error) {
	err = errors.Join(limitsOf(ctx, l, "limitranges", namespace, &all.Ranges), limitsOf(ctx, l, "resourcequotas", namespace, &all.Quotas))
	return all, err
}

func limitsOf[T any](ctx context.Context, l *podLister, resource, namespace string, into *[]*T) error {
	var found []T
	err := allOf(ctx, l, l.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace), "", &found)
	if err != nil {
		return errors.New(whyNot(err, resource))
	}
	for k := range found {
		*into = append(*into, &found[k])
	}
	return nil
}
