// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

const certManagerModule = "github.com/cert-manager/cert-manager"

// CertManagerBinaries returns the folder that holds the program of the module e2e/certmanager, and in crds
// the definitions of cert-manager's kinds. What is missing is built first, like the control plane.
func CertManagerBinaries(ctx context.Context, steps *Steps) (string, error) {
	own, err := goList(ctx, "{{.Dir}}")
	if err != nil {
		return "", err
	}
	module := filepath.Join(own, "certmanager")
	version, err := goListIn(ctx, module, "{{.Version}}", certManagerModule)
	if err != nil {
		return "", err
	}
	sum, err := sourceSum(module)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("building cert-manager %s (once, about 2 minutes)", version)
	return buildOnce(ctx, steps, "cert-manager-"+version+"-"+sum, what, func(dir string) error {
		return buildCertManager(ctx, module, dir)
	})
}

// sourceSum tells apart the states of a module: it is in the folder's name, so that a change is built.
func sourceSum(module string) (string, error) {
	files, err := filepath.Glob(filepath.Join(module, "*.go"))
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

func buildCertManager(ctx context.Context, module, dir string) error {
	if err := goCommand(ctx, module, "build", "-ldflags", "-s -w", "-o", filepath.Join(dir, "certmanager"), "."); err != nil {
		return err
	}
	source, err := goListIn(ctx, module, "{{.Dir}}", certManagerModule)
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

// CertManager is the real one: its controllers, which make certificates, and its cainjector, which writes
// caBundles.
type CertManager struct {
	controllers, injector *process
}

// StartCertManager installs cert-manager's kinds and runs both of its programs.
func (c *Cluster) StartCertManager(ctx context.Context) (*CertManager, error) {
	dir, err := CertManagerBinaries(ctx, c.steps)
	if err != nil {
		return nil, err
	}
	m := &CertManager{}
	return m, c.steps.Do("cert-manager's controllers and cainjector", func() error {
		crds := filepath.Join(dir, "crds")
		if _, err := c.RunKubectl(ctx, nil, "apply", "--server-side", "-f", crds); err != nil {
			return err
		}
		if _, err := c.RunKubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=30s", "-f", crds); err != nil {
			return err
		}
		start := func(program string) (*process, error) {
			p, err := startProcess(ctx, c.dir, "cert-manager-"+program, filepath.Join(dir, "certmanager"), "--kubeconfig", c.Kubeconfig, program)
			if err == nil {
				c.keep(p)
			}
			return p, err
		}
		if m.controllers, err = start("controllers"); err != nil {
			return err
		}
		m.injector, err = start("cainjector")
		return err
	})
}

// PauseInjector stops cainjector where it stands, until ResumeInjector.
func (m *CertManager) PauseInjector() error { return m.injector.cmd.Process.Signal(syscall.SIGSTOP) }

// ResumeInjector lets cainjector go on.
func (m *CertManager) ResumeInjector() error { return m.injector.cmd.Process.Signal(syscall.SIGCONT) }

// Log returns the ends of both programs' logs.
func (m *CertManager) Log() string { return m.controllers.tail() + "\n" + m.injector.tail() }
