// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// TestNotCalled checks that pods that did not opt in do not wait for Pillion.
func TestNotCalled(t *testing.T) {
	t.Parallel()
	optIn := func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }
	optOut := func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }
	nothing := func(*corev1.Pod) {}
	plain := func(t *testing.T) string { return plainNamespace(t) }
	disabled := func(t *testing.T) string { return plainNamespace(t, withLabel(injectLabel, "disabled")) }
	cases := []struct {
		name      string
		namespace func(*testing.T) string
		edit      func(*corev1.Pod)
	}{
		{"namespace says nothing", plain, nothing},
		{"namespace says nothing, pod opts out", plain, optOut},
		{"namespace says disabled", disabled, nothing},
		{"namespace says disabled, pod opts in", disabled, optIn},
		{"mirror pod", func(t *testing.T) string { return optedInNamespace(t) }, mirrorPod},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := c.namespace(t)
			before := len(env.pillion.Decided(ns))
			pod := createPod(t, ns, newPod("web", c.edit))
			wantNotCalled(t, pod, before)
		})
	}
}

// mirrorPod makes the pod look like a kubelet's picture of a static pod.
func mirrorPod(p *corev1.Pod) {
	p.Annotations[corev1.MirrorPodAnnotationKey] = "e2e"
	p.Spec.NodeName = "node-of-a-mirror-pod"
}

// wantNotCalled checks that neither webhook was called for the pod, given how many lines about its
// namespace were in Pillion's log before.
func wantNotCalled(t *testing.T, pod *corev1.Pod, logged int) {
	t.Helper()
	event := creation(t, pod.Namespace, pod.Name)
	wantCalls(t, event)
	if reasons := event.Reasons(); len(reasons) > 0 {
		t.Errorf("Pillion was asked about pod %s/%s: %v", pod.Namespace, pod.Name, reasons)
	}
	if lines := env.pillion.Decided(pod.Namespace); len(lines) != logged {
		t.Errorf("Pillion's log says that one of its webhooks was called: %v", lines[min(logged, len(lines)):])
	}
	wantNoLogger(t, pod)
}

// TestExcludedNamespaces checks that system namespaces and Pillion's own are unaffected, whatever
// labels they and their pods have.
func TestExcludedNamespaces(t *testing.T) {
	t.Parallel()
	for _, ns := range []string{"kube-system", "kube-public", "kube-node-lease", "pillion-system"} {
		t.Run(ns, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			if err := env.WaitForPods(ctx, ns); err != nil {
				t.Fatal(err)
			}
			optIn := func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }
			byItself := dryRun(t, ns, newPod("opts-in-by-itself", restricted, optIn))
			wantNotCalled(t, byItself, 0)

			// The probe shows that the API server has seen the namespace's new labels.
			probe := map[string]string{"e2e.example.com/probe": ns}
			labelNamespace(t, ns, map[string]any{injectLabel: "enabled", "e2e.example.com/probe": ns})
			t.Cleanup(func() { labelNamespace(t, ns, map[string]any{injectLabel: nil, "e2e.example.com/probe": nil}) })
			installWebhook(t, ns, "a", testwebhook.Webhook{Namespaces: probe, Mutate: testwebhook.Nothing})
			wantNotCalled(t, dryRun(t, ns, newPod("opted-in", restricted)), 0)
			wantNotCalled(t, dryRun(t, ns, newPod("opted-in-twice", restricted, optIn)), 0)
		})
	}
}

// restricted makes the pod one that the strictest Pod Security level admits.
func restricted(p *corev1.Pod) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			containers[i].SecurityContext = &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
		}
	}
}

func labelNamespace(t *testing.T, ns string, labels map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.CoreV1().Namespaces().Patch(cleanupContext(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func dryRun(t *testing.T, ns string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatalf("dry-run pod %s/%s: %v", ns, pod.Name, err)
	}
	return created
}
