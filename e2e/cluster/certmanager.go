// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// CertManager runs cert-manager: its controllers, which create certificates, and its
// cainjector, which sets caBundles.
type CertManager struct {
	controllers, injector *process
}

// StartCertManager installs cert-manager's resource types and runs both programs.
func (c *Cluster) StartCertManager(ctx context.Context) (*CertManager, error) {
	dir, err := programs.CertManager(ctx, c.steps)
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

// PauseInjector suspends cainjector until ResumeInjector.
func (m *CertManager) PauseInjector() error { return m.injector.cmd.Process.Signal(syscall.SIGSTOP) }

// ResumeInjector lets cainjector continue.
func (m *CertManager) ResumeInjector() error { return m.injector.cmd.Process.Signal(syscall.SIGCONT) }

// Log returns the ends of both programs' logs.
func (m *CertManager) Log() string { return m.controllers.tail() + "\n" + m.injector.tail() }
