// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// supportsResize reports whether the API server can resize running pods.
func (c *Client) supportsResize() (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return false, err
	}
	all, err := d.ServerResourcesForGroupVersion("v1")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" }), nil
}

// canResize is [Client.supportsResize] for advice: if the API server does not answer, it returns false instead of an error.
func (c *Client) canResize() bool {
	can, err := c.supportsResize()
	return err == nil && can
}
