// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"fmt"
	"path/filepath"
)

// Node returns the folder with the programs of a node: the tools of the module e2e/node. Missing
// programs are built first, as for the control plane.
func Node(ctx context.Context, steps *Steps) (string, error) {
	own, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	module := filepath.Join(own, "node")
	found, err := version(ctx, module, kubernetesModule)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("building the node's programs %s (once, about 2 minutes)", found)
	return once(ctx, steps, "node-"+found, what, func(dir string, progress *Progress) error {
		return buildKubernetes(ctx, module, found, dir, progress)
	})
}
