// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"path/filepath"
)

const helmModule = "helm.sh/helm/v4"

// Helm returns the program helm of the version that the module e2e/chart names. If it is missing,
// it is built first.
func Helm(ctx context.Context, steps *Steps) (string, error) {
	own, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	module := filepath.Join(own, "chart")
	found, err := version(ctx, module, helmModule)
	if err != nil {
		return "", err
	}
	dir, err := once(ctx, steps, "helm-"+found, "building helm "+found+" (once, about 2 minutes)", func(dir string, progress *Progress) error {
		return Build(ctx, module, helmModule+"/cmd/helm", progress, "-o", filepath.Join(dir, "helm"), "-ldflags", "-s -w")
	})
	return filepath.Join(dir, "helm"), err
}
