// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/manifests"
)

// namespaceLabels returns a function that returns a namespace's labels, and whether they can be read.
func (l *podLister) namespaceLabels(ctx context.Context) func(namespace string) (map[string]string, bool) {
	return func(namespace string) (map[string]string, bool) {
		ns, err := getObject[corev1.Namespace](ctx, l.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), namespace)
		return ns.Labels, err == nil
	}
}

// readPages reads a list page by page. If the API server no longer has the list that the pages
// belong to (410 Gone), readPages calls restart and begins again, once. The pager of client-go would
// fail then, or read everything in one page.
func readPages(ctx context.Context, selector string, page func(context.Context, metav1.ListOptions) (next string, err error), restart func()) error {
	options := metav1.ListOptions{Limit: pageSize, LabelSelector: selector}
	restarted := false
	for {
		next, err := onePage(ctx, options, page)
		switch {
		case err != nil && options.Continue != "" && !restarted && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)):
			restarted, options.Continue = true, ""
			restart()
			continue
		case err != nil || next == "":
			return err
		}
		options.Continue = next
	}
}

func onePage(ctx context.Context, options metav1.ListOptions, page func(context.Context, metav1.ListOptions) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return page(ctx, options)
}

// eachObject passes the objects of a list to each, one by one. It calls restart if it has to begin again, so that the caller discards
// the objects that it has got.
func (l *podLister) eachObject(ctx context.Context, client dynamic.ResourceInterface, selector string, each func(*unstructured.Unstructured) error, restart func()) error {
	return readPages(ctx, selector, func(ctx context.Context, options metav1.ListOptions) (string, error) {
		list, err := client.List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			if err := each(&list.Items[i]); err != nil {
				return "", err
			}
			list.Items[i].Object = nil // frees memory: only one pod is needed at a time
		}
		return list.GetContinue(), nil
	}, restart)
}

// readMutation reads the installed policies and webhooks that change objects. It notes what it
// cannot read.
func (l *podLister) readMutation(ctx context.Context, note func(string)) *status.Mutation {
	m := &status.Mutation{Own: manifests.Name}
	v1 := admissionregistrationv1.SchemeGroupVersion
	if err := listAll(ctx, l, v1.WithResource("mutatingwebhookconfigurations"), &m.Webhooks); err != nil {
		m.Webhooks = nil
		note("Other webhooks are not listed: " + whyNot(err, "mutatingwebhookconfigurations") + ".")
	}
	// Before Kubernetes 1.36, these policies are in beta, or do not exist.
	for _, version := range []string{"v1", "v1beta1"} {
		of := v1.Group + "/" + version
		group, _ := schema.ParseGroupVersion(of)
		err := listAll(ctx, l, group.WithResource("mutatingadmissionpolicies"), &m.Policies)
		if err == nil {
			err = listAll(ctx, l, group.WithResource("mutatingadmissionpolicybindings"), &m.Bindings)
		}
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			note("Policies that change pods are not listed: " + whyNot(err, "mutatingadmissionpolicies and mutatingadmissionpolicybindings") + ".")
		}
		break
	}
	return m
}

// readValidation reads the installed policies and webhooks that validate objects. It notes what it
// cannot read.
func (l *podLister) readValidation(ctx context.Context, note func(string)) *status.Validation {
	v := &status.Validation{Own: manifests.Name}
	v1 := admissionregistrationv1.SchemeGroupVersion
	if err := listAll(ctx, l, v1.WithResource("validatingwebhookconfigurations"), &v.Webhooks); err != nil {
		note("Other validating webhooks are not listed: " + whyNot(err, "validatingwebhookconfigurations") + ".")
	}
	err := listAll(ctx, l, v1.WithResource("validatingadmissionpolicies"), &v.Policies)
	if err == nil {
		err = listAll(ctx, l, v1.WithResource("validatingadmissionpolicybindings"), &v.Bindings)
	}
	if err != nil && !apierrors.IsNotFound(err) { // these policies exist since Kubernetes 1.30
		note("Policies that validate pods are not listed: " + whyNot(err, "validatingadmissionpolicies and validatingadmissionpolicybindings") + ".")
	}
	return v
}

// whyNot returns why resources could not be listed, as a part of a sentence.
func whyNot(err error, resources string) string {
	if apierrors.IsForbidden(err) {
		return "you are not allowed to list " + resources
	}
	return err.Error()
}

// listAll reads a whole list as objects of type T, without unused metadata.
func listAll[T any](ctx context.Context, l *podLister, resource schema.GroupVersionResource, into *[]T) error {
	return allOf(ctx, l, l.Resource(resource), "", into)
}

func allOf[T any](ctx context.Context, l *podLister, client dynamic.ResourceInterface, selector string, into *[]T) error {
	*into = []T{}
	return l.eachObject(ctx, client, selector, func(object *unstructured.Unstructured) error {
		object.SetManagedFields(nil)
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return err
		}
		*into = append(*into, *typed)
		return nil
	}, func() { *into = []T{} })
}

// explainForbidden returns the error with advice on what to do if the user lacks a permission.
func explainForbidden(err error, verb, resources, namespace, instead string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return forbiddenError{err, fmt.Sprintf("you are not allowed to %s %s%s: ask for the verb %s on the resource %s, or %s", verb, resources, InNamespace(namespace), verb, resources, instead)}
}

// forbiddenError is an API error with another text.
type forbiddenError struct {
	error
	text string
}

// Error implements error.
func (e forbiddenError) Error() string { return e.text }

// Unwrap returns the API error, for [errors.Is] and [errors.As].
func (e forbiddenError) Unwrap() error { return e.error }

// podLister reads the pods of a cluster.
type podLister struct {
	*Client
	progress *cli.Progress
}

// Limits of lists: the page size, and how long the token of a page is valid.
const (
	pageSize  = 500
	readLimit = time.Minute
)

// readLimits reads the LimitRanges and quotas of a namespace.
func (l *podLister) readLimits(ctx context.Context, namespace string) (all limits.Limits, err error) {
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
