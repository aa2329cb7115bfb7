// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// pluginsOff are admission plugins that change pods and are off by default.
const pluginsOff = "AlwaysPullImages,ExtendedResourceToleration,PodTolerationRestriction,PodNodeSelector,ImagePolicyWebhook"

// TestHarmlessPlugins checks that an API server with these plugins allows every protected sidecar
// without a warning, although the plugins change the sidecar and its pod after Pillion. A pod that pillion inject wrote is
// stored like one that the webhook injects with them, too.
func TestHarmlessPlugins(t *testing.T) {
	t.Parallel()
	policy := newImagePolicy(t)
	server, err := env.StartAPIServer(t.Context(), "--enable-admission-plugins="+pluginsOff, policy.flag(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() }) // how it ends does not matter
	t.Run("ImagePolicyWebhook", func(t *testing.T) { policy.check(t, server) })
	for _, c := range harmlessPluginsOff() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, server, optedInNamespace(t,
				withAnnotation("scheduler.alpha.kubernetes.io/node-selector", "pool=batch"),
				withAnnotation("scheduler.alpha.kubernetes.io/defaultTolerations", `[{"key":"batch","operator":"Exists"}]`)))
		})
	}
	for name, c := range writtenPods() {
		t.Run("from a file with "+name, func(t *testing.T) {
			t.Parallel()
			c.check(t, server.Client, optedInNamespace(t,
				withAnnotation("scheduler.alpha.kubernetes.io/node-selector", "pool=batch"),
				withAnnotation("scheduler.alpha.kubernetes.io/defaultTolerations", `[{"key":"batch","operator":"Exists"}]`)))
		})
	}
}

func harmlessPluginsOff() []harmless {
	pulled := func(_ *corev1.Pod, sidecar *corev1.Container) error {
		return wantEqual("imagePullPolicy", string(sidecar.ImagePullPolicy), "Always")
	}
	tolerated := func(pod *corev1.Pod, _ *corev1.Container) error {
		return wantTolerations(pod, "batch", "node.kubernetes.io/memory-pressure")
	}
	selected := func(pod *corev1.Pod, _ *corev1.Container) error {
		return wantEqual("nodeSelector", pod.Spec.NodeSelector["pool"], "batch")
	}
	return []harmless{
		{name: "AlwaysPullImages", template: "keeper", done: pulled}, // which says IfNotPresent
		{
			name: "ExtendedResourceToleration", template: "device",
			done: func(pod *corev1.Pod, _ *corev1.Container) error {
				return wantTolerations(pod, "example.com/device", "dedicated")
			},
		},
		{name: "PodTolerationRestriction", template: "sealed", done: tolerated},
		{name: "PodNodeSelector", template: "sealed", done: selected},
		{
			name: "all together", template: "lean",
			prepare: func(t *testing.T, ns string) {
				priorityClass(t, ns)
				runtimeClass(t, ns)
				limitRange(t, ns, corev1.LimitRangeItem{
					Type:           corev1.LimitTypeContainer,
					Default:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
					DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
				})
			},
			edit: func(p *corev1.Pod) {
				p.Spec.PriorityClassName = className
				p.Spec.RuntimeClassName = new(className)
				// PodTolerationRestriction and RuntimeClass both have a say in this.
				p.Spec.Tolerations = []corev1.Toleration{{Key: "mine", Operator: corev1.TolerationOpExists}}
			},
			done: func(pod *corev1.Pod, sidecar *corev1.Container) error {
				return errors.Join(
					pulled(pod, sidecar), tolerated(pod, sidecar), selected(pod, sidecar),
					hasPriority(pod, sidecar), hasOverhead(pod, sidecar), wantTolerations(pod, "mine"),
					wantEqual("memory limit", fmt.Sprint(sidecar.Resources.Limits.Memory()), "64Mi"))
			},
		},
	}
}
