// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods of the rollout: so many Deployments with so many pods each.
const (
	rolledOwners = 5
	rolledEach   = 10
)

// rolledTemplate is the template rolled with an image and memory.
func rolledTemplate(image, memory string) string {
	return fmt.Sprintf(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: rolled}
spec:
  pod:
    spec:
      initContainers:
      - name: rolled
        restartPolicy: Always
        image: %s
        imagePullPolicy: Never
        args: ["-serve=:9900"]
        startupProbe: {httpGet: {path: /, port: 9900}, periodSeconds: 1, failureThreshold: 60}
        resources: {requests: {cpu: 1m, memory: %s}, limits: {memory: %[2]s}}
`, image, memory)
}

// setRolled applies the template, and waits until all replicas use it.
func setRolled(t *testing.T, ns, image, memory string) {
	t.Helper()
	apply(t, ns, rolledTemplate(image, memory))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: map[string]string{"pillion.dev/templates": "rolled"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: StandIn}}},
	}
	eventually(t, "the template rolled is in use", func(ctx context.Context) error {
		for range 8 {
			made, err := env.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if c := made.Spec.InitContainers; len(c) == 0 || c[0].Image != image || c[0].Resources.Limits.Memory().String() != memory {
				return errors.New("a pod was not injected with the new template")
			}
		}
		return agree(ctx)
	})
}

func rolledDeployments(t *testing.T, ns string) []corev1.Pod {
	t.Helper()
	for i := range rolledOwners {
		apply(t, ns, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-%d}
spec:
  replicas: %d
  selector: {matchLabels: {app: web, n: "%[1]d"}}
  template:
    metadata: {labels: {app: web, n: "%[1]d"}, annotations: {pillion.dev/templates: rolled}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: app, image: "registry.example/standin:1", args: ["-serve=:8000"], resources: {requests: {cpu: 1m, memory: 16Mi}, limits: {memory: 16Mi}}}
`, i, rolledEach))
	}
	return readyPods(t, ns, "app=web", rolledOwners*rolledEach)
}

// rollout runs the command, and returns what it prints.
func rollout(t *testing.T, ns string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"rollout", ns, "--kubeconfig", env.Kubeconfig}, args...)
	out, err := exec.CommandContext(testContext(t), filepath.Join(env.dir, "image-pillion"), args...).CombinedOutput()
	return strings.Join(strings.Fields(string(out)), " "), err
}

// statusIn returns the status of a container.
func statusIn(pod *corev1.Pod, container string) corev1.ContainerStatus {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// TestRollout changes image and memory of a sidecar in running pods. The apps keep running.
func TestRollout(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	setRolled(t, ns, StandIn, "16Mi")
	apps := map[string]string{} // IDs of containers, by pod
	for _, pod := range rolledDeployments(t, ns) {
		apps[pod.Name] = statusIn(&pod, "app").ContainerID
	}
	wantRolled := func(image, memory string) {
		t.Helper()
		for _, pod := range readyPods(t, ns, "app=web", rolledOwners*rolledEach) {
			app, sidecar := statusIn(&pod, "app"), statusIn(&pod, "rolled")
			if apps[pod.Name] != app.ContainerID || app.RestartCount != 0 {
				t.Errorf("pod %s: the app has %d restarts and the ID %s, was %s", pod.Name, app.RestartCount, app.ContainerID, apps[pod.Name])
			}
			if spec := pod.Spec.InitContainers[0]; spec.Image != image || sidecar.Image != image || sidecar.Resources.Limits.Memory().String() != memory {
				t.Errorf("pod %s: the sidecar runs %s with %s", pod.Name, sidecar.Image, sidecar.Resources.Limits.Memory())
			}
		}
		if out, err := rollout(t, ns, "--dry-run"); err != nil || !strings.Contains(out, "All pods are current") {
			t.Errorf("afterwards: %v: %s", err, out)
		}
	}

	setRolled(t, ns, NextStandIn, "24Mi")
	started := time.Now()
	if out, err := rollout(t, ns, "--parallel", fmt.Sprint(rolledOwners)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	inPlace := time.Since(started)
	figure(t, fmt.Sprintf("new image and memory in %d pods, in place", rolledOwners*rolledEach), inPlace)
	wantRolled(NextStandIn, "24Mi")

	t.Run("bad image", func(t *testing.T) {
		setRolled(t, ns, "registry.example/standin:none", "24Mi")
		out, err := rollout(t, ns, "--first", "1", "--max-unavailable", "1", "--timeout", "60s")
		if err == nil || !strings.Contains(out, "ErrImageNeverPull") || !strings.Contains(out, "half done") {
			t.Errorf("%v: %s", err, out)
		}
		bad := 0
		for _, pod := range podsIn(t, ns) {
			if pod.Spec.InitContainers[0].Image != NextStandIn {
				bad++
				t.Logf("pod %s: generation %d of %d, %+v", pod.Name, pod.Status.ObservedGeneration, pod.Generation, statusIn(&pod, "rolled"))
			}
		}
		if bad != 1 {
			t.Errorf("%d pods have the bad image, want 1", bad)
		}
		setRolled(t, ns, NextStandIn, "24Mi")
		started := time.Now()
		if out, err := rollout(t, ns); err != nil {
			t.Errorf("with the old template: %v: %s", err, out)
		}
		figure(t, "until a pod with a bad image was repaired in place", time.Since(started))
		wantRolled(NextStandIn, "24Mi")
	})

	t.Run("infeasible", func(t *testing.T) {
		setRolled(t, ns, NextStandIn, "1Ti")
		out, err := rollout(t, ns, "--first", "1", "--max-unavailable", "1", "--timeout", "60s")
		if err == nil || !strings.Contains(out, "the API server denied the resize") || !strings.Contains(out, "enough allocatable resources: memory") {
			t.Errorf("%v: %s", err, out)
		}
		setRolled(t, ns, NextStandIn, "24Mi")
		if out, err := rollout(t, ns); err != nil {
			t.Errorf("with the old template: %v: %s", err, out)
		}
		wantRolled(NextStandIn, "24Mi")
	})

	started = time.Now()
	for i := range rolledOwners {
		kubectl(t, "-n", ns, "rollout", "restart", fmt.Sprintf("deployment/web-%d", i))
	}
	for i := range rolledOwners {
		kubectl(t, "-n", ns, "rollout", "status", fmt.Sprintf("deployment/web-%d", i), "--timeout=170s")
	}
	restart := time.Since(started)
	figure(t, "kubectl rollout restart of the same pods", restart)
	figure(t, "ratio", fmt.Sprintf("%.1f", restart.Seconds()/inPlace.Seconds()))
}
