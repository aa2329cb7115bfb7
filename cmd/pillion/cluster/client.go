// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject"
)

// Client reads a cluster with the permissions of its user.
type Client struct {
	dynamic.Interface
	api       rest.Interface // for streams
	config    *rest.Config
	stdin     io.Reader // for templates from "-"
	namespace string    // of the kubeconfig
	system    string
	about     []string // see About
}

// NewClient returns a client with the permissions of a configuration. Pillion runs in the namespace system.
func NewClient(config *rest.Config, system string) (*Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // warnings about a dry run are not relevant
	c := &Client{config: config, system: system}
	return c, c.makeClients()
}

// makeClients makes the clients of the API for the present configuration.
func (c *Client) makeClients() (err error) {
	if c.Interface, err = dynamic.NewForConfig(c.config); err == nil {
		c.api, err = kube.NewRESTClient(c.config)
	}
	return err
}

// Limit bounds the number of requests of the client and its executor to so many per second, in total.
func (c *Client) Limit(qps int) error {
	return c.setRateLimiter(flowcontrol.NewTokenBucketRateLimiter(float32(qps), 1)) // without a burst, so that no second has more
}

// LimitTenants is [Client.Limit], and lets the tenants of [WithTenant] take turns: only one request of each tenant at a time waits for
// the limit. So a tenant with many requests delays a request of another tenant by one request only.
func (c *Client) LimitTenants(qps int) error {
	return c.setRateLimiter(&tenantLimiter{flowcontrol.NewTokenBucketRateLimiter(float32(qps), 1), NewFairQueue()})
}

func (c *Client) setRateLimiter(by flowcontrol.RateLimiter) error {
	c.config.RateLimiter = by
	return c.makeClients()
}

// About limits the templates of namespaces that are read to those of the given namespaces. Without About, the templates of all
// namespaces are read.
func (c *Client) About(namespaces ...string) { c.about = namespaces }

// NamespaceOr returns the given namespace, or the kubeconfig's if none is given.
func (c *Client) NamespaceOr(named string) string {
	if named != "" {
		return named
	}
	return c.namespace
}

// getObject reads an object as type T. If there is an error, it returns an empty object.
func getObject[T any](ctx context.Context, client dynamic.ResourceInterface, name string) (*T, error) {
	typed := new(T)
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
	}
	return typed, err
}

// DryRun has the API server validate a pod, and returns why it rejects the pod.
func (c *Client) DryRun(ctx context.Context, namespace string, pod []byte) (rejected string, err error) {
	_, err = c.dryRun(ctx, namespace, "pillion-lint-", pod)
	if mayNotCreate(err) {
		return "", fmt.Errorf("--server needs the right to create pods in the namespace %s, even for a dry run: ask for it, or use another --namespace", namespace)
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return err.Error(), nil
	}
	return "", err
}

// dryRun returns what the API server would store if it created the pod.
func (c *Client) dryRun(ctx context.Context, namespace, prefix string, pod []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(pod, &object.Object); err != nil {
		return nil, err
	}
	object.SetAPIVersion("v1")
	object.SetKind("Pod")
	object.SetGenerateName(prefix)
	return c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace).Create(ctx, object,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
}

// mayNotCreate reports whether authorization denied the creation of a pod. An error of authorization names no
// pod, unlike an error of admission.
func mayNotCreate(err error) bool {
	denied, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(err) {
		return false
	}
	d := denied.ErrStatus.Details
	return d != nil && d.Kind == "pods" && d.Name == ""
}

// namesOf returns the names of all objects of a kind in a namespace. It reads only metadata, because pods are large, and
// from the API server's cache, which is cheap and may be slightly old.
func (c *Client) namesOf(ctx context.Context, resource schema.GroupVersionResource, namespace string) (names []string, err error) {
	list, err := c.metadataOf(ctx, resource, namespace, "")
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// LabelRollout is the label of namespaces in which the controller may update running pods.
const LabelRollout = inject.LabelRollout

// Injects reports whether Pillion may inject pods in a namespace, by its name and labels. The policy of the component
// rollout denies what the controller writes elsewhere.
func (c *Client) Injects(name string, labels map[string]string) bool {
	label, ok := labels[inject.LabelInject]
	return (!ok || label == inject.Enabled) && name != c.system && !slices.Contains(inject.SystemNamespaces(), name)
}

// Labelled returns the names of the namespaces that a label selector matches and for which keep returns true. It omits namespaces that
// are being deleted.
func (c *Client) Labelled(ctx context.Context, selector string, keep func(name string, labels map[string]string) bool) (names []string, err error) {
	list, err := c.metadataOf(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), metav1.NamespaceAll, selector)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if ns := &list.Items[i]; ns.DeletionTimestamp == nil && keep(ns.Name, ns.Labels) {
			names = append(names, ns.Name)
		}
	}
	return names, nil
}

func (c *Client) metadataOf(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string) (*metav1.PartialObjectMetadataList, error) {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	return client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: "0"})
}
