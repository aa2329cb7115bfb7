// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
)

// readDeployment reads how many replicas a Deployment of Pillion has.
func (c *Client) readDeployment(ctx context.Context, name string) (d check.Deployment, err error) {
	type deployment struct { // see apps
		Spec struct {
			Replicas *int `json:"replicas"`
		} `json:"spec"`
		Status struct {
			ReadyReplicas   int `json:"readyReplicas"`
			UpdatedReplicas int `json:"updatedReplicas"`
		} `json:"status"`
	}
	d.Name = name
	read, err := getObject[deployment](ctx, c.Resource(apps.WithResource("deployments")).Namespace(c.system), name)
	if apierrors.IsNotFound(err) {
		return d, nil
	}
	d.Found, d.Wanted, d.Ready, d.Updated = err == nil, 1, read.Status.ReadyReplicas, read.Status.UpdatedReplicas
	if read.Spec.Replicas != nil {
		d.Wanted = *read.Spec.Replicas
	}
	d.Unknown, err = whyForbidden(err, "get", "deployments", c.system)
	return d, err
}
