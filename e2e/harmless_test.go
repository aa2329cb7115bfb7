// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// harmless is something that Kubernetes, or another webhook, makes of a pod and that is none of Pillion's
// business, whatever the template protects.
type harmless struct {
	name string
	// template is in the mode Deny.
	template string
	// prepare makes what the namespace needs.
	prepare func(t *testing.T, ns string)
	// other is the other webhook, if there is one, and order its place.
	order string
	other testwebhook.Webhook
	edit  func(*corev1.Pod)
	// done returns what the case should have changed and did not. Otherwise the case would prove nothing.
	done func(pod *corev1.Pod, sidecar *corev1.Container) error
}

// TestHarmless checks that such pods are allowed without a warning.
func TestHarmless(t *testing.T) {
	t.Parallel()
	for _, c := range append(harmlessPlugins(), harmlessWebhooks()...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, env.APIServer(), optedInNamespace(t))
		})
	}
}

func (c *harmless) check(t *testing.T, server *cluster.APIServer, ns string) {
	t.Helper()
	if c.prepare != nil {
		c.prepare(t, ns)
	}
	if c.order != "" {
		installWebhook(t, ns, c.order, c.other)
	}
	pod := newPod("web", requests(c.template))
	if c.edit != nil {
		c.edit(pod)
	}
	// What has been prepared takes some moments to have its effect.
	probe := pod.DeepCopy()
	probe.Name = "probe"
	eventually(t, "it happens to the pod", func(ctx context.Context) error {
		probe, err := server.Client.CoreV1().Pods(ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		return c.happened(probe)
	})
	created := wantVerdictAt(t, server, ns, pod, says(allowed, c.template, ""))
	if err := c.happened(created); err != nil {
		t.Error(err)
	}
}

func (c *harmless) happened(pod *corev1.Pod) error {
	sidecar := findContainer(pod, c.template)
	if sidecar == nil {
		return fmt.Errorf("%s was not injected: %v", c.template, containerNames(pod.Spec.InitContainers))
	}
	return c.done(pod, sidecar)
}

// harmlessPlugins are those that an API server has by default, and its defaulting.
func harmlessPlugins() []harmless {
	memoryLimits := corev1.LimitRangeItem{
		Type:           corev1.LimitTypeContainer,
		Default:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
	}
	return []harmless{
		{name: "defaults on every field", template: "keeper", done: defaulted},
		{
			name: "LimitRanger", template: "lean",
			prepare: func(t *testing.T, ns string) { limitRange(t, ns, memoryLimits) },
			done: func(pod *corev1.Pod, sidecar *corev1.Container) error {
				if !strings.Contains(pod.Annotations["kubernetes.io/limit-ranger"], "init container lean") {
					return fmt.Errorf("the plugin's annotation is %q", pod.Annotations["kubernetes.io/limit-ranger"])
				}
				return wantEqual("memory request", sidecar.Resources.Requests.Memory().String(), "48Mi")
			},
		},
		{
			name: "token inherited", template: "keeper",
			done: func(pod *corev1.Pod, sidecar *corev1.Container) error { return wantToken(pod, sidecar, true) },
		},
		{
			name: "token sealed off", template: "sealed",
			done: func(pod *corev1.Pod, sidecar *corev1.Container) error { return wantToken(pod, sidecar, false) },
		},
		{
			name: "DefaultTolerationSeconds", template: "device",
			done: func(pod *corev1.Pod, _ *corev1.Container) error {
				return wantTolerations(pod, "dedicated", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
			},
		},
		{name: "Priority", template: "keeper", prepare: priorityClass, edit: func(p *corev1.Pod) { p.Spec.PriorityClassName = className }, done: hasPriority},
		{name: "RuntimeClass", template: "keeper", prepare: runtimeClass, edit: func(p *corev1.Pod) { p.Spec.RuntimeClassName = new(className) }, done: hasOverhead},
		{
			name: "image pull secrets of the ServiceAccount", template: "keeper",
			prepare: pullSecret,
			done: func(pod *corev1.Pod, _ *corev1.Container) error {
				return wantEqual("imagePullSecrets", fmt.Sprint(pod.Spec.ImagePullSecrets), "[{registry}]")
			},
		},
		{
			name: "own container, filled in", template: "guard",
			edit: func(p *corev1.Pod) {
				overrides("guard", "customize", "true")(p)
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
					Name: "guard", Resources: corev1.ResourceRequirements{Requests: resources("5m", "8Mi")},
				})
			},
			done: func(_ *corev1.Pod, sidecar *corev1.Container) error {
				return errors.Join(
					wantEqual("cpu request", sidecar.Resources.Requests.Cpu().String(), "5m"),
					wantEqual("image", sidecar.Image, "registry.example/guard:1.4.2"))
			},
		},
		{
			name: "ports of the node on its network", template: "device",
			edit: func(p *corev1.Pod) { p.Spec.HostNetwork = true },
			done: func(_ *corev1.Pod, sidecar *corev1.Container) error {
				return wantEqual("hostPort", fmt.Sprint(sidecar.Ports[0].HostPort), "15070")
			},
		},
	}
}

// defaulted checks some of the places at which Kubernetes stores more than the template has, or another form of it.
func defaulted(pod *corev1.Pod, sidecar *corev1.Container) error {
	projected := ""
	for _, v := range pod.Spec.Volumes {
		if v.Name == "keeper-files" {
			projected = fmt.Sprint(*v.Projected.DefaultMode)
		}
	}
	return errors.Join(
		wantEqual("scheme of the probe", string(sidecar.LivenessProbe.HTTPGet.Scheme), "HTTP"),
		wantEqual("path of the probe", sidecar.LivenessProbe.HTTPGet.Path, "/"),
		wantEqual("failureThreshold", fmt.Sprint(sidecar.StartupProbe.FailureThreshold), "3"),
		wantEqual("scheme of the hook", string(sidecar.Lifecycle.PreStop.HTTPGet.Scheme), "HTTP"),
		wantEqual("protocol", string(sidecar.Ports[0].Protocol), "TCP"),
		wantEqual("apiVersion of the field", sidecar.Env[0].ValueFrom.FieldRef.APIVersion, "v1"),
		wantEqual("divisor", sidecar.Env[1].ValueFrom.ResourceFieldRef.Divisor.String(), "0"),
		wantEqual("cpu request", sidecar.Resources.Requests.Cpu().String(), "50m"),
		wantEqual("memory request, from the limit", sidecar.Resources.Requests.Memory().String(), "1Gi"),
		wantEqual("terminationMessagePath", sidecar.TerminationMessagePath, "/dev/termination-log"),
		wantEqual("mode of the files", projected, "420"))
}

func wantEqual(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q, want %q", what, got, want)
	}
	return nil
}

func wantToken(pod *corev1.Pod, c *corev1.Container, inherited bool) error {
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if m.MountPath == tokenPath && v.Name == m.Name && (v.Projected != nil) == inherited {
				return nil
			}
		}
	}
	return fmt.Errorf("the sidecar's mounts are %v", c.VolumeMounts)
}

func wantTolerations(pod *corev1.Pod, keys ...string) error {
	has := map[string]bool{}
	for _, toleration := range pod.Spec.Tolerations {
		has[toleration.Key] = true
	}
	for _, key := range keys {
		if !has[key] {
			return fmt.Errorf("no toleration of %s in %v", key, pod.Spec.Tolerations)
		}
	}
	return nil
}

// className is the name of the classes that these tests make; classes have no namespace.
const className = "harmless"

func priorityClass(t *testing.T, _ string) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: className}, Value: 1234}
	_, err := env.Client.SchedulingV1().PriorityClasses().Create(testContext(t), class, metav1.CreateOptions{})
	made(t, err)
}

func runtimeClass(t *testing.T, _ string) {
	class := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: className},
		Handler:    "sandbox",
		Overhead:   &nodev1.Overhead{PodFixed: resources("250m", "120Mi")},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"sandbox": "yes"},
			Tolerations:  []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}},
		},
	}
	_, err := env.Client.NodeV1().RuntimeClasses().Create(testContext(t), class, metav1.CreateOptions{})
	made(t, err)
}

// made accepts that another test was first.
func made(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func hasPriority(pod *corev1.Pod, _ *corev1.Container) error {
	if pod.Spec.Priority == nil {
		return errors.New("the pod has no priority")
	}
	return wantEqual("priority", fmt.Sprint(*pod.Spec.Priority), "1234")
}

func hasOverhead(pod *corev1.Pod, _ *corev1.Container) error {
	return errors.Join(
		wantEqual("overhead", pod.Spec.Overhead.Cpu().String(), "250m"),
		wantEqual("nodeSelector", pod.Spec.NodeSelector["sandbox"], "yes"),
		wantTolerations(pod, "sandbox"))
}

func pullSecret(t *testing.T, ns string) {
	patch := []byte(`{"imagePullSecrets":[{"name":"registry"}]}`)
	_, err := env.Client.CoreV1().ServiceAccounts(ns).Patch(testContext(t), "default", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// harmlessWebhooks change what is not theirs to leave alone, or what no template protects.
func harmlessWebhooks() []harmless {
	own := corev1.Container{Name: "other", Image: "registry.example/other:1"}
	add := testwebhook.Edit(func(p *corev1.Pod) { addContainer(p, own) })
	hasOther := func(pod *corev1.Pod, _ *corev1.Container) error {
		c := findContainer(pod, own.Name)
		if c == nil {
			return fmt.Errorf("no container %s in %v", own.Name, containerNames(pod.Spec.Containers))
		}
		return wantEqual("mounts", fmt.Sprint(slices.Contains(mountPaths(*c), "/var/keeper")), "true")
	}
	return []harmless{
		{
			name: "another injector before", template: "keeper",
			order: "a", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: add}, done: hasOther,
		}, {
			name: "another injector after", template: "keeper",
			order: "z", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: add}, done: hasOther,
		}, {
			name: "another injector before all init containers", template: "keeper",
			order: "z", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				if p.Spec.InitContainers[0].Name != "first" {
					p.Spec.InitContainers = slices.Insert(p.Spec.InitContainers, 0, corev1.Container{Name: "first", Image: "registry.example/first:1"})
				}
			})},
			done: func(pod *corev1.Pod, _ *corev1.Container) error {
				return wantEqual("init containers", strings.Join(containerNames(pod.Spec.InitContainers), " "), "first keeper migrate")
			},
		}, {
			name: "labels and annotations", template: "keeper",
			order: "z", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				p.Labels["other"], p.Annotations["example.com/other"] = "yes", "yes"
			})},
			done: func(pod *corev1.Pod, _ *corev1.Container) error {
				return wantEqual("label and annotation", pod.Labels["other"]+pod.Annotations["example.com/other"], "yesyes")
			},
		}, {
			name: "mirror of images", template: "device", // which does not protect it
			order: "z", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				eachContainer(p, func(c *corev1.Container) { c.Image = strings.Replace(c.Image, "registry.example", "mirror.example", 1) })
			})},
			done: func(_ *corev1.Pod, sidecar *corev1.Container) error {
				return wantEqual("image", sidecar.Image, "mirror.example/device:1")
			},
		}, {
			name: "scheduling", template: "device",
			order: "z", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				p.Spec.NodeSelector = map[string]string{"pool": "batch"}
				p.Spec.SchedulerName = "other-scheduler"
				if wantTolerations(p, "batch") != nil {
					p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "batch", Operator: corev1.TolerationOpExists})
				}
			})},
			done: func(pod *corev1.Pod, _ *corev1.Container) error {
				return errors.Join(wantTolerations(pod, "batch", "dedicated"), wantEqual("scheduler", pod.Spec.SchedulerName, "other-scheduler"))
			},
		}, {
			name: "more resources than the template says", template: "guard", // which does not protect them
			order: "z", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				eachContainer(p, guaranteed)
			})},
			done: func(_ *corev1.Pod, sidecar *corev1.Container) error {
				return wantEqual("cpu request", sidecar.Resources.Requests.Cpu().String(), "100m")
			},
		}, {
			name: "app's own variable and image", template: "guard",
			order: "z", other: testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				p.Spec.Containers[0].Image = "registry.example/web:2"
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "OTHER", Value: "yes"}}
			})},
			done: func(pod *corev1.Pod, _ *corev1.Container) error {
				return wantEqual("image", pod.Spec.Containers[0].Image, "registry.example/web:2")
			},
		},
	}
}

func addContainer(p *corev1.Pod, c corev1.Container) {
	if findContainer(p, c.Name) == nil {
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
}
