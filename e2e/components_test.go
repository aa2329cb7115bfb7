// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// renderWith renders base or an overlay with components, all by their folders under manifests.
func renderWith(t *testing.T, target string, components ...string) *cluster.Manifests {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, filepath.Join(root, "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s/%s]\ncomponents:\n", relative, target)
	for _, c := range components {
		text += fmt.Sprintf("- %s/components/%s\n", relative, c)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := cluster.RenderManifests(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestComponents checks that the API server accepts the base with each component, and each overlay
// with all components. The module "shipped" checks the kinds
// of the Prometheus operator, because the API server does not have them.
func TestComponents(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(root, "manifests", "components", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatal("no components", err)
	}
	var all []string
	for _, folder := range folders {
		name := filepath.Base(folder)
		all = append(all, name)
		t.Run(name, func(t *testing.T) {
			if name == "keep-ca-bundle" {
				needsKubernetes(t, 36, servesMutating)
			}
			dryApply(t, renderWith(t, "base", name))
		})
	}
	for _, overlay := range []string{"overlays/cert-manager", "overlays/self-signed"} {
		t.Run(overlay, func(t *testing.T) { renderWith(t, overlay, all...) })
	}
}

func dryApply(t *testing.T, m *cluster.Manifests) {
	t.Helper()
	var known []byte
	for _, doc := range documents(t, m) {
		if !bytes.Contains(doc, []byte("apiVersion: monitoring.coreos.com/")) {
			known = append(append(known, "---\n"...), doc...)
		}
	}
	_, err := env.RunKubectl(testContext(t), known, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
	if err != nil {
		t.Error(err)
	}
	m.Mutating.Name, m.Validating.Name = "dry", "dry"
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	api := env.Client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Create(testContext(t), m.Mutating, options); err != nil {
		t.Error(err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(testContext(t), m.Validating, options); err != nil {
		t.Error(err)
	}
	if m.Advising == nil {
		return
	}
	m.Advising.Name = "dry-advise"
	if _, err := api.ValidatingWebhookConfigurations().Create(testContext(t), m.Advising, options); err != nil {
		t.Error(err)
	}
}

// documents are the Rest of m one by one.
func documents(t *testing.T, m *cluster.Manifests) (all [][]byte) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(m.Rest)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, doc)
	}
}

func deploymentOf(t *testing.T, m *cluster.Manifests) (d appsv1.Deployment) {
	t.Helper()
	all := documents(t, m)
	i := slices.IndexFunc(all, func(doc []byte) bool { return bytes.Contains(doc, []byte("\nkind: Deployment\n")) })
	if err := yaml.UnmarshalStrict(all[i], &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOwnPod checks that Pillion's own pod is accepted by the namespace's Pod Security level and by
// the plugin that sets priorities.
func TestOwnPod(t *testing.T) {
	t.Parallel()
	d := deploymentOf(t, env.manifests)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "replica", Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec}
	made := dryRun(t, d.Namespace, pod)
	if made.Spec.Priority == nil || *made.Spec.Priority != 1_000_000_000 {
		t.Errorf("its priority is %v", made.Spec.Priority)
	}
	// The ServiceAccount gives no token, so that the pod's own automountServiceAccountToken is what counts.
	if !slices.Contains(mountPaths(made.Spec.Containers[0]), "/var/run/secrets/kubernetes.io/serviceaccount") {
		t.Errorf("it has no token: the mounts are %q", mountPaths(made.Spec.Containers[0]))
	}
	tokenless := pod.DeepCopy()
	tokenless.Spec.AutomountServiceAccountToken = nil
	if made := dryRun(t, d.Namespace, tokenless); len(made.Spec.Volumes) != len(tokenless.Spec.Volumes) {
		t.Error("another pod of the ServiceAccount gets a token without asking for it")
	}
	if with := deploymentOf(t, renderWith(t, "base", "hpa")); with.Spec.Replicas != nil {
		t.Errorf("%d replicas, about which the autoscaler has to fight", *with.Spec.Replicas)
	}
}

// TestFailurePolicies runs alone, because it changes the configurations that all tests share.
// Pillion cannot be reached. The components determine what happens to a pod then, but system pods
// and Pillion's own pods are never affected.
func TestFailurePolicies(t *testing.T) {
	ns := optedInNamespace(t)
	create := func(ns string, edits ...func(*corev1.Pod)) (*corev1.Pod, error) {
		return env.Client.CoreV1().Pods(ns).Create(cleanupContext(), newPod("web", edits...), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	install := func(m *cluster.Manifests, at cluster.Endpoint) {
		t.Helper()
		if err := errors.Join(env.InstallMutating(cleanupContext(), m, at), env.InstallValidating(cleanupContext(), m, at)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		install(env.manifests, env.pillion.Endpoint)
		ctx, cancel := context.WithTimeout(cleanupContext(), waitLimit)
		defer cancel()
		pollUntil(ctx, t, "Pillion is back", func() bool {
			pod, err := create(ns)
			return err == nil && pod.Annotations["logger.pillion.dev/injected"] != ""
		})
	})
	install(renderWith(t, "base", "fail-closed"), nowhere())
	eventually(t, "fail-closed denies", func(context.Context) error {
		_, err := create(ns)
		if want := `failed calling webhook "namespace.mutate.pillion.dev"`; err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("the error is %w, want one with %q", err, want)
		}
		return nil
	})
	for _, system := range []string{"kube-system", "pillion-system"} {
		if _, err := create(system, restricted, func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }); err != nil {
			t.Errorf("a pod in %s has to wait for Pillion: %v", system, err)
		}
	}
	install(renderWith(t, "base", "fail-open"), nowhere())
	eventually(t, "fail-open lets pass", func(context.Context) error {
		_, err := create(ns)
		return err
	})
}
