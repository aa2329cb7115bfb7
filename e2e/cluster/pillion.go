// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// The names in the shipped manifests.
const (
	pillionNamespace      = "pillion-system"
	pillionServiceAccount = "pillion"
)

// Root returns the root of the checkout with this module.
func Root(ctx context.Context) (string, error) { return programs.Root(ctx) }

// BuildPillion returns the path of the checkout's pillion in the Cluster's folder. It has the flags of the image.
func (c *Cluster) BuildPillion(ctx context.Context) (string, error) {
	built, err := programs.Pillion(ctx, c.steps)
	if err != nil {
		return "", err
	}
	binary := c.Path("pillion")
	return binary, programs.LinkProgram(built, binary)
}

// BuildPillionQuickly compiles the checkout's pillion into the Cluster's folder, with the flags of make build. After make
// build or make test, this takes a second.
func (c *Cluster) BuildPillionQuickly(ctx context.Context) (string, error) {
	binary := c.Path("pillion")
	return binary, c.steps.Follow("go build ./cmd/pillion", func(progress *programs.Progress) error {
		root, err := Root(ctx)
		if err != nil {
			return err
		}
		return programs.Build(ctx, root, "./cmd/pillion", progress, "-o", binary)
	})
}

// Pillion is a running `pillion serve`.
type Pillion struct {
	// Endpoint is its webhook address.
	Endpoint Endpoint
	// Admin is the URL of its admin address.
	Admin string

	process *process
}

// StartPillion runs `pillion serve` on free ports, with a serving certificate of the Cluster's
// authority and the permissions of the shipped ServiceAccount, so the manifests must have been
// applied. It returns when Pillion is ready.
func (c *Cluster) StartPillion(ctx context.Context, binary string, templates ...string) (*Pillion, error) {
	return c.StartPillionWith(ctx, binary, nil, templates...)
}

// StartPillionWith is StartPillion with flags.
func (c *Cluster) StartPillionWith(ctx context.Context, binary string, flags []string, templates ...string) (*Pillion, error) {
	var p *Pillion
	err := c.steps.Do("pillion serve", func() error {
		ctx, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		var err error
		kubeconfig, err := c.kubeconfigOf(ctx, pillionServiceAccount)
		if err != nil {
			return err
		}
		p, err = c.startPillion(ctx, binary, templates, nil, append([]string{"--kubeconfig", kubeconfig}, flags...)...)
		return err
	})
	return p, err
}

// StartReplica runs one of several Pillions behind a Proxy. It is not connected to the
// cluster, so all callers count as opted in. It uses HTTP/1.1, as API servers do for a
// Service: many connections, each to any replica.
func (c *Cluster) StartReplica(ctx context.Context, binary, templates string, flags ...string) (*Pillion, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	return c.startPillion(ctx, binary, []string{templates}, []string{"GODEBUG=http2server=0"}, append(flags, "--standalone")...)
}

func (c *Cluster) startPillion(ctx context.Context, binary string, templates, environ []string, flags ...string) (*Pillion, error) {
	name := "pillion-" + shortID()
	certFile, keyFile, err := c.Authority.writeServing(c.dir, name)
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"serve",
		"--listen", "127.0.0.1:0",
		"--admin-listen", "127.0.0.1:0",
		"--tls-cert-file", certFile,
		"--tls-key-file", keyFile,
		"--shutdown-delay", "0s", // there is no Service that must notice the shutdown
		"--log-level", "debug", // logs every request
	}, flags...)
	for _, t := range templates {
		args = append(args, "--templates", t)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, args...)
	cmd.Env = append(programs.CleanEnvironment(os.Environ()), environ...)
	process, err := run(c.dir, name, cmd)
	if err != nil {
		return nil, err
	}
	c.keep(process)
	p := &Pillion{process: process, Endpoint: Endpoint{CA: c.Authority.PEM}}
	if err := process.waitUntil(ctx, "listening", func(context.Context) bool { return p.findAddresses() }); err != nil {
		return nil, err
	}
	return p, process.waitUntil(ctx, "ready", p.ready)
}

// kubeconfigOf writes a kubeconfig with a shipped ServiceAccount's identity for a process outside the
// cluster.
func (c *Cluster) kubeconfigOf(ctx context.Context, account string) (string, error) {
	lifetime := int64(certificateLifetime.Seconds())
	token, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of the shipped ServiceAccount %s: %w", account, err)
	}
	return c.WriteKubeconfig(account, token.Status.Token)
}

// findAddresses finds the log line with Pillion's addresses.
func (p *Pillion) findAddresses() bool {
	for _, line := range p.Logged("serving") {
		p.Endpoint.URL = "https://" + line["webhook"].(string)
		p.Admin = "http://" + line["admin"].(string)
		return true
	}
	return false
}

func (p *Pillion) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Decided returns the log lines about requests in a namespace.
func (p *Pillion) Decided(namespace string) []map[string]any {
	var lines []map[string]any
	for _, line := range p.Logged("request") {
		if line["namespace"] == namespace {
			lines = append(lines, line)
		}
	}
	return lines
}

// Logged returns the log lines with one of these messages.
func (p *Pillion) Logged(msgs ...string) []map[string]any {
	text, err := os.ReadFile(p.process.log)
	if err != nil {
		return nil
	}
	var lines []map[string]any
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for scanner.Scan() {
		var line map[string]any
		if json.Unmarshal(scanner.Bytes(), &line) != nil {
			continue
		}
		if msg, ok := line["msg"].(string); ok && slices.Contains(msgs, msg) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Metrics reads Pillion's own metrics.
func (p *Pillion) Metrics(ctx context.Context) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return parseMetrics(response.Body)
}

// LogTail returns the end of Pillion's log.
func (p *Pillion) LogTail() string { return p.process.tail() }

// Stop sends SIGTERM and returns Pillion's exit error.
func (p *Pillion) Stop() error { return p.process.stop() }

// Pause suspends Pillion until Resume: the kernel still accepts connections, and nothing answers.
func (p *Pillion) Pause() error { return p.process.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets Pillion continue.
func (p *Pillion) Resume() error { return p.process.cmd.Process.Signal(syscall.SIGCONT) }

// Inject runs `pillion inject` on one object and returns its standard output.
func Inject(ctx context.Context, binary string, object []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, binary, append([]string{"inject", "-f", "-"}, args...)...)
	cmd.Env = programs.CleanEnvironment(os.Environ())
	cmd.Stdin = bytes.NewReader(object)
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pillion inject: %w%s", err, stderrOf(err)))
	}
	return out, nil
}
