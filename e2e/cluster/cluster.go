// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pillion-dev/pillion/e2e/programs"
)

const readyWithin = time.Minute

// Cluster is a running control plane.
type Cluster struct {
	// Config is the administrator's. Clients with it are not throttled.
	Config *rest.Config
	Client kubernetes.Interface
	// Kubeconfig is the path of a kubeconfig with the content of Config.
	Kubeconfig string
	// Kubectl is the path of kubectl, or "" if prebuilt programs lack it.
	Kubectl string
	// Programs are the programs of the control plane.
	Programs *programs.Programs
	// Namespace is where Pillion is installed. A test may change it before it installs Pillion.
	Namespace string
	// Audit is the API server's audit log of requests for pods.
	Audit *AuditLog
	// Authority signs every serving certificate of the run.
	Authority *Authority

	dir       string
	flags     []string // of every API server
	steps     *programs.Steps
	apiServer *process

	mu      sync.Mutex
	running []*process // in the order in which they were started
}

// Start is StartPrograms with the programs of [programs.Kubernetes].
func Start(ctx context.Context, steps *programs.Steps) (*Cluster, error) {
	found, err := programs.Kubernetes(ctx, steps)
	if err != nil {
		return nil, err
	}
	return StartPrograms(ctx, steps, found)
}

// StartPrograms runs a control plane on free ports and in a temporary folder. Its API servers get
// these flags after the usual ones. It returns when the API server and the controllers are ready;
// ctx limits only the start.
func StartPrograms(ctx context.Context, steps *programs.Steps, found *programs.Programs, flags ...string) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "pillion-e2e-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, steps: steps, Programs: found, Kubectl: found.Kubectl, Namespace: pillionNamespace, flags: flags}
	err = steps.Do("etcd, kube-apiserver, "+filepath.Base(found.Controllers), func() error {
		ctx, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		return c.start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.Authority, err = NewAuthority("pillion-e2e"); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	return c.startControllers(ctx)
}

// Stop ends everything that the Cluster started, in reverse order, and removes its folder.
func (c *Cluster) Stop() error {
	var errs []error
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range slices.Backward(c.running) {
		v.kill() // the exit status does not matter here
	}
	c.running = nil
	errs = append(errs, os.RemoveAll(c.dir))
	return errors.Join(errs...)
}

// keep makes Stop end p too. Concurrent tests may start programs.
func (c *Cluster) keep(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = append(c.running, p)
}

// Path returns the path of a file in the Cluster's folder.
func (c *Cluster) Path(name string) string { return filepath.Join(c.dir, name) }

// RunKubectl runs kubectl as the administrator and returns its standard output.
func (c *Cluster) RunKubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	if c.Kubectl == "" {
		return nil, errors.New("there is no kubectl: install it (https://kubernetes.io/docs/tasks/tools/)")
	}
	cmd := exec.CommandContext(ctx, c.Kubectl, args...)
	cmd.Env = append(programs.CleanEnvironment(os.Environ()), "KUBECONFIG="+c.Kubeconfig)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w%s", args[0], err, stderrOf(err))
	}
	return out, nil
}

// clientConfig returns the configuration for a client of the API server at host.
func (c *Cluster) clientConfig(host, token string) *rest.Config {
	return &rest.Config{
		Host:            host,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.Authority.PEM},
		QPS:             -1,
		UserAgent:       "pillion-e2e",
		WarningHandler:  rest.NoWarnings{}, // tests that check warnings set another handler
	}
}

// WriteKubeconfig writes a kubeconfig with a token and returns its path.
func (c *Cluster) WriteKubeconfig(user, token string) (string, error) {
	path := c.Path(user + ".kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Authority.PEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: user}
	config.CurrentContext = "e2e"
	return path, clientcmd.WriteToFile(*config, path)
}

func randomToken() string { return rand.Text() }
