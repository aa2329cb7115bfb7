// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	within    = time.Minute
	pollEvery = 20 * time.Millisecond
)

// install installs a server that changes nothing, one that returns Pillion's patch as a
// constant, and Pillion. Each has Pillion's two shipped configurations in its own namespace.
// All use HTTP/1.1, as API servers do for a Service.
func (b *bench) install(ctx context.Context) ([]way, error) {
	root, err := cluster.Root(ctx)
	if err != nil {
		return nil, err
	}
	if b.binary, err = b.BuildPillion(ctx); err != nil {
		return nil, err
	}
	shipped, err := cluster.RenderManifests(filepath.Join(root, "manifests", "base"))
	if err != nil {
		return nil, err
	}
	if err := b.ApplyRest(ctx, shipped); err != nil {
		return nil, err
	}
	noop, err := b.runConstant(ctx, "noop")
	if err != nil {
		return nil, err
	}
	patch, err := b.runConstant(ctx, "patch", "-answer", "/mutate="+b.answer)
	if err != nil {
		return nil, err
	}
	pillion, err := b.StartReplica(ctx, b.binary, b.templates, "--log-level=info") // as shipped
	if err != nil {
		return nil, err
	}
	keep, optOut := func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Labels["pillion.dev/inject"] = "disabled" }
	ways := []way{
		{"none", "bench-none", keep, 0},
		{"noop", "bench-noop", keep, 0},
		{"constant-patch", "bench-patch", keep, 1},
		{"pillion", "bench-pillion", keep, 1},
		{"pillion-opted-out", "bench-pillion", optOut, 0},
	}
	for _, ns := range []string{"none", "noop", "patch", "pillion"} {
		if err := b.namespace(ctx, "bench-"+ns, map[string]string{"bench": ns}); err != nil {
			return nil, err
		}
	}
	for _, w := range []struct {
		name string
		at   cluster.Endpoint
	}{{"patch", patch}, {"noop", noop}, {"pillion", pillion.Endpoint}} {
		own := shipped.ForNamespaces(w.name, map[string]string{"bench": w.name})
		if err := errors.Join(b.InstallMutating(ctx, own, w.at), b.InstallValidating(ctx, own, w.at)); err != nil {
			return nil, err
		}
		if w.name == "patch" { // it fits no other pod; the API server uses the configuration a moment later
			continue
		}
		if err := b.live(ctx, own, "bench-"+w.name); err != nil {
			return nil, err
		}
	}
	return ways, nil
}

// live waits until the API server calls both webhooks of the configurations.
func (b *bench) live(ctx context.Context, m *cluster.Manifests, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	before, err := b.validations(ctx, m)
	if err != nil {
		return err
	}
	if err := b.WaitForPods(ctx, namespace); err != nil {
		return err
	}
	if err := b.WaitForWebhook(ctx, namespace, cluster.Called(m.Mutating.Name)); err != nil {
		return err
	}
	return b.WaitForWebhook(ctx, namespace, func(cluster.Event) bool { // no other pods are being created
		now, err := b.validations(ctx, m)
		return err == nil && now > before
	})
}

func (b *bench) validations(ctx context.Context, m *cluster.Manifests) (float64, error) {
	metrics, err := b.Metrics(ctx)
	return metrics.Counter(cluster.CallsMetric, map[string]string{"name": m.Validating.Webhooks[0].Name, "type": "validating"}), err
}

func (b *bench) namespace(ctx context.Context, name string, labels map[string]string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err := b.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	return err
}

// stopServers stops the servers that runConstant started.
func (b *bench) stopServers() {
	for _, cmd := range b.servers {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// runConstant starts the program and returns when it listens.
func (b *bench) runConstant(ctx context.Context, name string, args ...string) (at cluster.Endpoint, err error) {
	cert, key, err := b.Authority.Serving()
	if err != nil {
		return at, err
	}
	certFile, keyFile := b.Path(name+".crt"), b.Path(name+".key")
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		return at, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return at, err
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.CommandContext(ctx, b.constant, append([]string{"-listen", address, "-cert", certFile, "-key", keyFile}, args...)...)
	cmd.Env = append(os.Environ(), "GODEBUG=http2server=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return at, err
	}
	b.servers = append(b.servers, cmd)
	return cluster.Endpoint{URL: "https://" + address, CA: b.Authority.PEM}, poll(ctx, func(ctx context.Context) (bool, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return true, conn.Close()
	})
}

func poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, pollEvery, within, true, done)
}

// namespacesKnown measures the memory of a Pillion that is connected to the cluster, without
// and with many namespaces.
func (b *bench) namespacesKnown(ctx context.Context) error {
	pillion, err := b.StartPillion(ctx, b.binary, b.templates)
	if err != nil {
		return err
	}
	if err := b.memory(ctx, pillion, "namespaces/none"); err != nil {
		return err
	}
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range b.namespaces {
		group.Go(func() error {
			return b.namespace(limited, fmt.Sprintf("bench-team-%d", i), map[string]string{"pillion.dev/inject": "enabled", "example.com/team": fmt.Sprint("team-", i)})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := b.WaitForPods(ctx, fmt.Sprintf("bench-team-%d", b.namespaces-1)); err != nil {
		return err
	}
	b.measured["namespaces/count"] = []float64{float64(b.namespaces)}
	return b.memory(ctx, pillion, "namespaces/many")
}

// memory records the resident memory in MiB.
func (b *bench) memory(ctx context.Context, p *cluster.Pillion, name string) error {
	metrics, err := p.Metrics(ctx)
	if err != nil {
		return err
	}
	for _, m := range metrics["process_resident_memory_bytes"].GetMetric() {
		b.measured[name] = append(b.measured[name], m.GetGauge().GetValue()/(1<<20))
	}
	return nil
}
