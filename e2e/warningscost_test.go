// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// TestWarningsCost measures what warnings and Events cost. The page "Costs" has the figures.
func TestWarningsCost(t *testing.T) {
	skipUnlessFull(t, "it measures")
	p, err := env.StartPillionWith(t.Context(), env.binary, []string{"--advise"}, env.templates...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := env.InstallAdvising(testContext(t), env.manifests, adviseLabel, p.Endpoint); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := env.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(cleanupContext(), adviseConfiguration, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	warned := advisedNamespace(t)
	t.Run("apply", func(t *testing.T) { applyCost(t, p, optedInNamespace(t), warned) })
	t.Run("events", func(t *testing.T) { (&controlled{env.Cluster}).eventsCost(t, warned) })
}

// applyCost measures dry runs, so that no controller works.
func applyCost(t *testing.T, p *cluster.Pillion, unwarned, warned string) {
	t.Helper()
	const rounds = 400
	dry := []string{metav1.DryRunAll}
	wrong := newDeployment("web", map[string]string{"pillion.dev/templates": "fluent-bit"})
	var existing [2]*appsv1.Deployment
	namespaces, names := [2]string{unwarned, warned}, [2]string{"unwarned", "warned"}
	for n, ns := range namespaces {
		d := newDeployment("there", nil)
		d.Spec.Replicas = new(int32(0))
		var err error
		if existing[n], err = env.Client.AppsV1().Deployments(ns).Create(testContext(t), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	took := map[string][]time.Duration{}
	before := cpuOf(t, p)
	for range rounds {
		for n, ns := range namespaces {
			began := time.Now()
			if _, err := env.Client.AppsV1().Deployments(ns).Create(testContext(t), wrong, metav1.CreateOptions{DryRun: dry}); err != nil {
				t.Fatal(err)
			}
			took["create, "+names[n]] = append(took["create, "+names[n]], time.Since(began))
			patch := fmt.Appendf(nil, `{"spec":{"paused":%t}}`, !existing[n].Spec.Paused)
			began = time.Now()
			if _, err := env.Client.AppsV1().Deployments(ns).Patch(testContext(t), "there", types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry}); err != nil {
				t.Fatal(err)
			}
			took["update that changes no pod, "+names[n]] = append(took["update that changes no pod, "+names[n]], time.Since(began))
		}
	}
	for _, what := range []string{"create, unwarned", "create, warned", "update that changes no pod, unwarned", "update that changes no pod, warned"} {
		slices.Sort(took[what])
		t.Logf("%s: median %s, p99 %s", what, took[what][rounds/2], took[what][rounds*99/100])
	}
	t.Logf("CPU of pillion serve for each of %d warned creates: %s", rounds, ((cpuOf(t, p) - before) / rounds).Round(time.Microsecond))
}

// cpuOf returns the CPU time that a process of Pillion has used.
func cpuOf(t *testing.T, p *cluster.Pillion) time.Duration {
	t.Helper()
	metrics, err := p.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(metrics.Counter("process_cpu_seconds_total", nil) * float64(time.Second))
}

// eventsCost creates pods of many workloads with a mistake as fast as the API server does, with and without Events in turns.
func (c *controlled) eventsCost(t *testing.T, ns string) {
	t.Helper()
	const rounds, pods = 5, 1000
	var took, cpu [2][]time.Duration
	for round := range 2 * rounds {
		flag := round % 2
		p := c.start(t, fmt.Sprintf("--pod-events=%t", flag == 1))
		eventually(t, "it leads", func(ctx context.Context) error {
			if len(p.Logged("this replica leads")) == 0 {
				return errors.New("not yet")
			}
			return wantReadiness(ctx, p, 200, "ok\n")
		})
		before, began := cpuOf(t, p), time.Now()
		for n := range pods {
			pod := newPod(fmt.Sprintf("web-%d-%d", round, n), func(p *corev1.Pod) {
				p.Annotations = map[string]string{"pillion.dev/templates": "fluent-bit"}
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "App", Name: fmt.Sprintf("app-%d-%d", round, n/10), UID: types.UID(fmt.Sprintf("%d-%d", round, n/10)), Controller: new(true)}}
			})
			if _, err := c.Client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		took[flag] = append(took[flag], time.Since(began)/pods)
		cpu[flag] = append(cpu[flag], (cpuOf(t, p)-before)/pods)
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		c.kubectl(t, "", "delete", "pods", "--all", "-n", ns, "--wait=false", "--grace-period=0", "--force")
	}
	for flag, name := range []string{"without Events", "with Events"} {
		slices.Sort(took[flag])
		slices.Sort(cpu[flag])
		t.Logf("%s: a create takes %s, and the controller's CPU for it is %s (medians of %d rounds of %d pods)", name, took[flag][rounds/2].Round(time.Microsecond), cpu[flag][rounds/2].Round(time.Microsecond), rounds, pods)
	}
	list, err := c.Client.EventsV1().Events(ns).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Events", len(list.Items))
}
