// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	importLabel = "e2e.example.com/import"
	importKind  = "shop" // of the namespace, for an expression
)

// TestImportedPolicies checks that a template that pillion import writes for an admission policy adds to a pod what the API server
// adds for the policy itself.
func TestImportedPolicies(t *testing.T) {
	t.Parallel()
	needsKubernetes(t, 36, servesMutating)
	files, err := filepath.Glob("testdata/import/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no policies", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			byPolicy := plainNamespace(t, withLabel(importLabel, name), withLabel("kind", importKind))
			installImported(t, file, byPolicy)
			template := importPolicy(t, file)
			without := plainNamespace(t)
			for _, c := range importedPods() {
				want := createPod(t, byPolicy, newPod(c.name, c.edit))
				got := createPod(t, without, injectFile(t, template, name, newPod(c.name, c.edit)))
				wantSamePod(t, "imported template", want, got)
			}
		})
	}
}

type importedPod struct {
	name string
	edit func(*corev1.Pod)
}

// importedPods are pods that have what the policies add to, or lack it. Without a token, the order of the volumes does not depend on
// when it is added.
func importedPods() []importedPod {
	no := false
	tokenless := func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &no }
	return []importedPod{
		{"plain", tokenless},
		{"no-init", func(p *corev1.Pod) { tokenless(p); p.Spec.InitContainers = nil }},
		{"full", func(p *corev1.Pod) {
			tokenless(p)
			p.Annotations["size"] = "1Gi"
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		}},
	}
}

// installImported applies a policy, and waits until the API server evaluates it.
func installImported(t *testing.T, file, namespace string) {
	t.Helper()
	if _, err := env.RunKubectl(testContext(t), nil, "apply", "-f", file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := env.RunKubectl(cleanupContext(), nil, "delete", "--wait=false", "-f", file); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the policy adds", func(ctx context.Context) error {
		probe := newPod("probe")
		pod, err := env.Client.CoreV1().Pods(namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(pod.Annotations) == len(probe.Annotations) {
			err = fmt.Errorf("it adds nothing yet")
		}
		return err
	})
}

// importPolicy returns the path of the template for a policy. Nothing may be left out.
func importPolicy(t *testing.T, file string) string {
	t.Helper()
	var report bytes.Buffer
	cmd := exec.CommandContext(testContext(t), env.binary, "import", "-f", file)
	cmd.Stderr = &report
	template, err := cmd.Output()
	if err != nil {
		t.Fatalf("pillion import: %v\n%s", err, report.String())
	}
	path := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(path, template, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// injectFile returns a pod with a template, without the records of Pillion.
func injectFile(t *testing.T, template, label string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	manifest, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testContext(t), env.binary, "inject", "-q", "-f", "-", "-t", template,
		"--namespace-label", importLabel+"="+label, "--namespace-label", "kind="+importKind)
	cmd.Stdin = bytes.NewReader(manifest)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pillion inject: %v", err)
	}
	var injected corev1.Pod
	if err := json.Unmarshal(out, &injected); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for key := range injected.Annotations {
		if strings.Contains(key, "pillion.dev/") {
			delete(injected.Annotations, key)
		}
	}
	return &injected
}
