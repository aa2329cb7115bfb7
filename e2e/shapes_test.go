// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestShapes checks that Kubernetes accepts injected pods of all shapes, with one call for each.
func TestShapes(t *testing.T) {
	t.Parallel()
	for _, c := range shapes() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			pod := createPod(t, ns, newPod("web", c.edit))
			wantLogger(t, pod)
			wantCalls(t, creation(t, ns, pod.Name), calledOnce)
			wantSameAsCommand(t, pod)
			wantNothingToAdd(t, pod)
		})
	}
}

// podCase is a pod that differs from [newPod].
type podCase struct {
	name string
	edit func(*corev1.Pod)
}

func shapes() []podCase {
	return []podCase{
		{"nothing but a container", func(p *corev1.Pod) {
			p.Labels, p.Annotations = nil, nil
			p.Spec = corev1.PodSpec{Containers: p.Spec.Containers[1:]}
		}},
		{"no volumes at all", func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(false) }},
		{"pod-level resources", podLevelResources},
		{"Guaranteed", func(p *corev1.Pod) { eachContainer(p, guaranteed) }},
		{"own native sidecar", ownSidecar},
		{"brings its own logger", customized},
		{"same port twice", func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {ContainerPort: 53, Protocol: corev1.ProtocolTCP}}
		}},
		{"variable set already", func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "LOG_DIR", Value: "/mine"})
		}},
		{"host port and host users", func(p *corev1.Pod) {
			p.Spec.HostUsers = new(false)
			p.Spec.Containers[0].Ports[0].HostPort = 8080
		}},
		{"odd keys", func(p *corev1.Pod) {
			p.Annotations[`example.com/A_a.b-c`] = "\"quotes\" and \\ and\nlines and ☃"
			p.Labels["example.com/a"] = ""
		}},
		{"scheduling gate", func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/later"}}
		}},
	}
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// podLevelResources leave no room for a sidecar that asks for resources of its own.
func podLevelResources(p *corev1.Pod) {
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: resources("40m", "20Mi"), Limits: resources("40m", "20Mi")}
}

// TestPodLevelLimits checks limits at the level of the pod. Kubernetes 1.36 derives requests from
// them before it calls webhooks, and 1.37 afterwards. No sidecar may request more.
func TestPodLevelLimits(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	pod := createPod(t, ns, newPod("web", podLevelResources, func(p *corev1.Pod) { p.Spec.Resources.Requests = nil }))
	wantLogger(t, pod)
	wantCalls(t, creation(t, ns, pod.Name), calledOnce)
	wantNothingToAdd(t, pod)
}

func eachContainer(p *corev1.Pod, edit func(*corev1.Container)) {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			edit(&containers[i])
		}
	}
}

func guaranteed(c *corev1.Container) {
	c.Resources = corev1.ResourceRequirements{Requests: resources("100m", "64Mi"), Limits: resources("100m", "64Mi")}
}

func ownSidecar(p *corev1.Pod) {
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
		Name: "mine", Image: "registry.example/mine:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
	})
}

// customized gives the pod a part of the template's container. That part stays, and Pillion adds the rest.
func customized(p *corev1.Pod) {
	p.Annotations["logger.pillion.dev/customize"] = "true"
	own := corev1.Container{Name: "logger", Image: "registry.example/my-logger:9", Resources: corev1.ResourceRequirements{Requests: resources("5m", "8Mi")}}
	p.Spec.InitContainers = append([]corev1.Container{own}, p.Spec.InitContainers...)
}

// TestLibrary checks the shipped templates in pods of the strictest Pod Security level.
func TestLibrary(t *testing.T) {
	t.Parallel()
	for name, params := range libraryParams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t, withLabel("pod-security.kubernetes.io/enforce", "restricted"))
			pod := createPod(t, ns, newPod("web", restricted, requests(name), func(p *corev1.Pod) {
				for param, value := range params {
					overrides(name, param, value)(p)
				}
			}))
			if pod.Annotations[name+".pillion.dev/injected"] == "" {
				t.Fatalf("not injected; Pillion said %v", creation(t, ns, "web").Reasons())
			}
			wantCalls(t, creation(t, ns, pod.Name), calledOnce)
			wantSameAsCommand(t, pod)
			wantNothingToAdd(t, pod)
		})
	}
}
