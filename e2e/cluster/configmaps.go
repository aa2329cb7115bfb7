// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"path/filepath"
)

// StartSelecting is StartPillion with templates from the ConfigMaps that match the selector,
// and with the permissions of the shipped component.
func (c *Cluster) StartSelecting(ctx context.Context, component, binary, selector string) (*Pillion, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if _, err := c.RunKubectl(ctx, nil, "apply", "--server-side", "--validate=strict", "-f", filepath.Join(component, "rbac.yaml")); err != nil {
		return nil, err
	}
	kubeconfig, err := c.pillionKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	return c.startPillion(ctx, binary, nil, []string{"GODEBUG=http2server=0"}, "--kubeconfig", kubeconfig, "--template-configmaps", selector)
}
