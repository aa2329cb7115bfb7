// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/manifests"
)

// whatFollows extends the error that Pillion's ConfigMap with templates does not exist. If Pillion's webhooks are still installed, it
// adds what happens to new pods.
func (l *podLister) whatFollows(ctx context.Context, err error) error {
	if _, ok := errors.AsType[noTemplatesError](err); !ok {
		return err
	}
	resource := admissionregistrationv1.SchemeGroupVersion.WithResource
	mutating, merr := getObject[admissionregistrationv1.MutatingWebhookConfiguration](ctx, l.Resource(resource("mutatingwebhookconfigurations")), manifests.Name)
	validating, verr := getObject[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, l.Resource(resource("validatingwebhookconfigurations")), manifests.Name)
	var names []string
	becomes := "start without sidecars (failurePolicy Ignore)"
	for _, e := range slices.Concat(explain.MutatingEntries(mutating), explain.ValidatingEntries(validating)) {
		names = append(names, e.Name)
		if e.Type != explain.Shadow && e.FailurePolicy == string(admissionregistrationv1.Fail) {
			becomes = "are denied (failurePolicy Fail)"
		}
	}
	if len(names) == 0 || merr != nil && !apierrors.IsNotFound(merr) || verr != nil && !apierrors.IsNotFound(verr) {
		return err
	}
	return fmt.Errorf("%w. Pillion's webhooks are still installed: no new replica of Pillion can start, and while none answers, new pods that opted in %s. "+
		"Put the ConfigMap back, or delete the webhook configurations %s", err, becomes, manifests.Name)
}

// considerRestarts finds out which owners of a namespace's pods could be restarted to get current pods, and what speaks against it.
func (k *survey) considerRestarts(ctx context.Context, namespace string, count *status.Count) error {
	if len(k.report.Problems)+len(k.report.Doubts) > 0 {
		return nil
	}
	if why := count.WhyNoRestarts(); why != "" {
		count.HoldRestarts("", why)
		return nil
	}
	if err := count.PlanOthers(); err != nil {
		return err
	}
	var limits *limits.Limits
	for _, kind := range Kinds() {
		names := count.RestartCandidates(kind.Kind) // only of kinds that can be restarted
		if len(names) == 0 {
			continue
		}
		if limits == nil {
			all, err := k.readLimits(ctx, namespace)
			if err != nil {
				count.HoldRestarts("", "whether the limits of the namespace allow new pods is unknown: "+err.Error())
				return nil //nolint:nilerr // the report has the reason
			}
			limits = &all
		}
		room := func(labels map[string]string, pod []byte, n int) string { return k.fits.Room(labels, *limits, pod, n) }
		err := k.eachObject(ctx, k.Resource(kind.Resource()).Namespace(namespace), "", func(object *unstructured.Unstructured) error {
			if !slices.Contains(names, object.GetName()) {
				return nil
			}
			object.SetGroupVersionKind(kind.GroupVersionKind) // items of a list may lack it
			text, err := object.MarshalJSON()
			if err == nil {
				err = count.ConsiderRestart(text, room)
			}
			return err
		}, func() {})
		switch {
		case apierrors.IsForbidden(err):
			count.HoldRestarts(kind.Kind, fmt.Sprintf("you are not allowed to list %s in the namespace %s", kind.resource, namespace))
		case err != nil:
			return err
		}
	}
	return nil
}
