// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const certManagerModule = "github.com/cert-manager/cert-manager"

// CertManager returns the folder with the program of the module e2e/certmanager. Its subfolder
// crds has cert-manager's CustomResourceDefinitions. Missing programs are built first, as for
// the control plane.
func CertManager(ctx context.Context, steps *Steps) (string, error) {
	own, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	module := filepath.Join(own, "certmanager")
	found, err := version(ctx, module, certManagerModule)
	if err != nil {
		return "", err
	}
	sum, err := sourceSum(module, module)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("building cert-manager %s (once, about 2 minutes)", found)
	return once(ctx, steps, "cert-manager-"+found+"-"+sum, what, func(dir string, progress *Progress) error {
		return buildCertManager(ctx, module, dir, progress)
	})
}

// sourceSum returns a hash of a package and of its module's versions. It is part of the
// folder's name, so that changes are built.
func sourceSum(dir, module string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	files = append(files, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum"))
	slices.Sort(files)
	hash := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(file), len(text), text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), nil
}

func buildCertManager(ctx context.Context, module, dir string, progress *Progress) error {
	if err := Build(ctx, module, ".", progress, "-o", filepath.Join(dir, "certmanager"), "-ldflags", "-s -w"); err != nil {
		return err
	}
	source, err := goList(ctx, module, nil, "-m", "-f", "{{.Dir}}", certManagerModule)
	if err != nil {
		return err
	}
	definitions, err := filepath.Glob(filepath.Join(source, "deploy", "crds", "cert-manager.io_*.yaml"))
	if err != nil || len(definitions) == 0 {
		return fmt.Errorf("no definitions of cert-manager's kinds in %s: %w", source, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "crds"), 0o755); err != nil {
		return err
	}
	for _, definition := range definitions {
		text, err := os.ReadFile(definition)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "crds", filepath.Base(definition)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
