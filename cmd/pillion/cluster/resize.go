// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// supportsResize reports whether the API server can resize running pods.
func (c *Client) supportsResize() (bool, error) { return c.servesResource("v1", "pods/resize") }

// servesResource reports whether the API server serves a resource of a group and version, which every user may ask.
func (c *Client) servesResource(groupVersion, resource string) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return false, err
	}
	all, err := d.ServerResourcesForGroupVersion(groupVersion)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

// canResize is [Client.supportsResize] for advice: if the API server does not answer, it returns false instead of an error.
func (c *Client) canResize() bool {
	can, err := c.supportsResize()
	return err == nil && can
}
