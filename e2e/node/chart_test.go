// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
)

// TestChart installs, upgrades, rolls back and uninstalls the chart, as the page about Helm does, while pods are
// created. cert-manager runs, and all values are the defaults.
func TestChart(t *testing.T) {
	needCertManager(t)
	h := newHelm(t)
	ns := optedInNamespace(t)
	var pod corev1.Pod
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", func(t *testing.T) { pod = h.testInstall(t, ns) }},
		{"upgrade", h.testUpgrade},
		{"rollback", h.testRollback},
		{"uninstall", func(t *testing.T) { h.testUninstall(t, &pod) }},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// TestChartSelfSigned installs the chart without cert-manager.
func TestChartSelfSigned(t *testing.T) {
	h := newHelm(t)
	h.testInstall(t, optedInNamespace(t), "--set", "certificates.source="+selfSigned)
}

// testInstall installs the chart under load, and returns the first injected pod. Until the template is in use,
// pods may start without a sidecar, and from the registration of the webhooks to the first ready replica, the
// API server may deny them.
func (h *helm) testInstall(t *testing.T, ns string, flags ...string) (pod corev1.Pod) {
	t.Helper()
	disrupt(t, true, func(t *testing.T, l *load) {
		started := time.Now()
		h.run(t, append([]string{"install", "pillion", h.chart, "--create-namespace"}, flags...)...)
		figure(t, "helm install", time.Since(started))
		applyTemplate(t, ns, "helper")
		used := time.Now()
		l.mayMiss = func(when time.Time) bool { return when.Before(used) }
		apply(t, ns, web)
		pod = readyPods(t, ns, "app=web", 1)[0]
		figure(t, "from helm install to the first injected pod, ready", time.Since(started))
		wantSidecar(t, &pod)
		h.wantReplicas(t, 2, releaseTag)
		figure(t, "from helm install to a complete rollout of Pillion", time.Since(started))
	})
	// From here on, no replica accepts a pod without the template: see installed.
	kubectl(t, "-n", pillionNamespace, "rollout", "restart", "deployment/pillion")
	h.wantReplicas(t, 2, releaseTag)
	return pod
}

func (h *helm) testUpgrade(t *testing.T) {
	disrupt(t, false, func(t *testing.T, _ *load) {
		h.run(t, "upgrade", "pillion", h.chart, "--reuse-values", "--set", "image.tag="+otherTag+",replicas=3")
		h.wantReplicas(t, 3, otherTag)
	})
}

func (h *helm) testRollback(t *testing.T) {
	disrupt(t, false, func(t *testing.T, _ *load) {
		h.run(t, "rollback", "pillion", "1")
		h.wantReplicas(t, 2, releaseTag)
	})
}

// testUninstall uninstalls the chart under load. No pod waits for Pillion, and what was injected keeps running.
func (h *helm) testUninstall(t *testing.T, before *corev1.Pod) {
	disrupt(t, false, func(t *testing.T, l *load) {
		started := time.Now()
		l.mayMiss = func(when time.Time) bool { return when.After(started) }
		h.run(t, "uninstall", "pillion")
		figure(t, "helm uninstall", time.Since(started))
		readyPods(t, pillionNamespace, "", 0)
		figure(t, "from helm uninstall to the end of all replicas", time.Since(started))
		apply(t, l.ns, web)
		for _, pod := range readyPods(t, l.ns, "app=web", 1) {
			if status(&pod, "helper") != nil {
				t.Errorf("a pod was injected: %s", stateOf(&pod))
			}
		}
	})
	for _, pod := range readyPods(t, before.Namespace, "app=web", 1) {
		wantUntouched(t, before, &pod, "app", "helper")
	}
}

// helm runs the program helm.
type helm struct{ program, chart string }

// newHelm returns helm for a cluster without Pillion, which it becomes again at the end of the test.
func newHelm(t *testing.T) *helm {
	t.Helper()
	remove(t)
	program, err := programs.Helm(testContext(t), env.steps)
	if err != nil {
		t.Fatal(err)
	}
	root, err := cluster.Root(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	h := &helm{program: program, chart: filepath.Join(root, "manifests", "chart")}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitWithin)
		defer cancel()
		if t.Failed() {
			t.Log(describe(ctx, pillionNamespace))
		}
		if err := h.try(ctx, "uninstall", "pillion", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
		for _, args := range [][]string{{"namespace", pillionNamespace}, {"customresourcedefinitions", "sidecartemplates.pillion.dev", "clustersidecartemplates.pillion.dev"}} {
			if _, err := env.RunKubectl(ctx, nil, append([]string{"delete", "--ignore-not-found"}, args...)...); err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

// run runs helm for the namespace of Pillion.
func (h *helm) run(t *testing.T, args ...string) {
	t.Helper()
	if err := h.try(testContext(t), args...); err != nil {
		t.Fatal(err)
	}
}

func (h *helm) try(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, h.program, append(args, "--namespace", pillionNamespace)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig, "HELM_CACHE_HOME="+env.path("helm"), "HELM_CONFIG_HOME="+env.path("helm"), "HELM_DATA_HOME="+env.path("helm"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w\n%s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// wantReplicas waits until n replicas with this tag are ready, and no other.
func (h *helm) wantReplicas(t *testing.T, n int, tag string) {
	t.Helper()
	waitForRollout(t)
	for _, pod := range readyPods(t, pillionNamespace, pillionSelector, n) {
		if got, want := pod.Spec.Containers[0].Image, pillionName+":"+tag; got != want {
			t.Errorf("%s runs %s, want %s", pod.Name, got, want)
		}
	}
}
