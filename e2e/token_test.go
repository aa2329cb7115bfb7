// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestToken checks that a sidecar gets the ServiceAccount's token as Kubernetes would have mounted it
// or, if the template requests that, an empty directory instead. In both cases Kubernetes adds
// nothing.
func TestToken(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)

	t.Run("Inherit", func(t *testing.T) {
		pod := createPod(t, ns, newPod("inherit"))
		volume := tokenVolume(t, pod, container(t, pod, "logger"))
		if volume.Projected == nil {
			t.Errorf("the sidecar mounts %s at %s, want the token's projected volume", volume.Name, tokenPath)
		}
		wantCalls(t, creation(t, ns, pod.Name), calledOnce)
	})
	t.Run("None", func(t *testing.T) {
		pod := createPod(t, ns, newPod("none", requests("tokenless")))
		if volume := tokenVolume(t, pod, container(t, pod, "tokenless")); volume.DownwardAPI == nil || len(volume.DownwardAPI.Items) > 0 {
			t.Errorf("the sidecar mounts %s at %s, want an empty volume", volume.Name, tokenPath)
		}
		if volume := tokenVolume(t, pod, container(t, pod, "web")); volume.Projected == nil {
			t.Errorf("the app's container lost its token: it mounts %s", volume.Name)
		}
		wantCalls(t, creation(t, ns, pod.Name), calledOnce)
	})
	t.Run("pod without token", func(t *testing.T) {
		pod := createPod(t, ns, newPod("without", func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(false) }))
		if paths := mountPaths(container(t, pod, "logger")); slices.Contains(paths, tokenPath) {
			t.Errorf("the sidecar mounts the token that the pod does not have: %v", paths)
		}
		wantCalls(t, creation(t, ns, pod.Name), calledOnce)
	})
	t.Run("own mounts in its place", func(t *testing.T) {
		// Kubernetes would make a token for the sidecar alone, had it nothing of its own there.
		pod := createPod(t, ns, newPod("own", ownTokenMounts))
		if volume := tokenVolume(t, pod, container(t, pod, "logger")); volume.DownwardAPI == nil || len(volume.DownwardAPI.Items) > 0 {
			t.Errorf("the sidecar mounts %s at %s, want an empty volume", volume.Name, tokenPath)
		}
		wantCalls(t, creation(t, ns, pod.Name), calledOnce)
		wantNothingToAdd(t, pod)
	})
}

// ownTokenMounts keep the application's containers away from the token.
func ownTokenMounts(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	eachContainer(p, func(c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "empty", MountPath: tokenPath}}
	})
}

func tokenVolume(t *testing.T, pod *corev1.Pod, c corev1.Container) corev1.Volume {
	t.Helper()
	for _, m := range c.VolumeMounts {
		if m.MountPath != tokenPath {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.Name == m.Name {
				return v
			}
		}
	}
	t.Fatalf("container %s of pod %s mounts nothing at %s: %v", c.Name, pod.Name, tokenPath, c.VolumeMounts)
	return corev1.Volume{}
}
