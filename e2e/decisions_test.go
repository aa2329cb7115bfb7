// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	templatesAnnotation = "pillion.dev/templates"
	tokenPath           = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// TestNotInjected checks that Pillion is called, adds nothing, and reports the reason.
func TestNotInjected(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, template, code string
		edit                 func(*corev1.Pod)
		// warning is part of the warning in the answer; "" if there is none.
		warning string
	}{
		{"opted out", "logger", "pod_opted_out", func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }, ""},
		{"host network", "logger", "host_network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, ""},
		{"other templates requested", "logger", "not_requested", requests("-logger"), ""},
		{"other operating system", "logger", "wrong_os", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, ""},
		{"container's name taken", "logger", "conflict", takenContainer, "logger"},
		{"mount path taken", "logger", "conflict", takenMountPath, "/var/log/app"},
		{"volume's name taken", "logger", "conflict", takenVolume, "app-logs"},
		{"port of the node taken", "host", "conflict", takenHostPort, "9100"},
		{"value not allowed", "logger", "invalid_parameter", overrides("logger", "level", "loud"), "loud"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			client, warnings := warnedClient(t)
			pod, err := client.CoreV1().Pods(ns).Create(testContext(t), newPod("web", c.edit), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			event := creation(t, ns, pod.Name)
			wantCalls(t, event, calledInVain)
			wantReason(t, event, c.template, c.code)
			wantWarning(t, warnings, c.warning)
			if pod.Annotations["logger.pillion.dev/injected"] != "" {
				t.Errorf("injected: %v", pod.Annotations)
			}
			wantSameAsCommand(t, pod)
		})
	}
}

func requests(list string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[templatesAnnotation] = list }
}

func overrides(template, param, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[template+".pillion.dev/"+param] = value }
}

func takenContainer(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "logger", Image: "registry.example/mine:1"})
}

func takenMountPath(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "mine", MountPath: "/var/log/app"}}
}

func takenVolume(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "app-logs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log"}}}}
}

// takenHostPort gives the app the host port of the sidecar. Kubernetes would admit the injected pod, but no node could run it.
func takenHostPort(p *corev1.Pod) {
	requests("host")(p)
	p.Spec.Containers[0].Ports[0].HostPort = 9100
}

// TestDecisions checks which of several templates a pod gets, and the message about each of them.
func TestDecisions(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name           string
		edit           func(*corev1.Pod)
		initContainers []string
		containers     []string
		reasons        map[string]string
	}{
		{
			"the defaults", func(*corev1.Pod) {},
			[]string{"logger", "migrate"},
			[]string{"web", "worker"},
			map[string]string{"logger": "injected", "proxy": "not_requested", "gpu": "condition_false"},
		}, {
			"condition true", func(p *corev1.Pod) { p.Labels["accelerator"] = "yes" },
			[]string{"logger", "gpu", "migrate"},
			[]string{"web", "worker"},
			map[string]string{"logger": "injected", "proxy": "not_requested", "gpu": "injected"},
		}, {
			"one more requested", requests("+proxy"),
			[]string{"logger", "migrate"},
			[]string{"web", "worker", "proxy"},
			map[string]string{"logger": "injected", "proxy": "injected", "gpu": "condition_false"},
		}, {
			"exactly one requested", requests("proxy"),
			[]string{"migrate"},
			[]string{"web", "worker", "proxy"},
			map[string]string{"logger": "not_requested", "proxy": "injected", "gpu": "not_requested"},
		}, {
			"host network allowed", func(p *corev1.Pod) { p.Spec.HostNetwork = true; requests("+host")(p) },
			[]string{"migrate"},
			[]string{"web", "worker", "host"},
			map[string]string{"logger": "host_network", "host": "injected"},
		}, {
			"a conflict leaves the others alone", func(p *corev1.Pod) { takenContainer(p); requests("+proxy")(p) },
			[]string{"migrate"},
			[]string{"web", "worker", "logger", "proxy"},
			map[string]string{"logger": "conflict", "proxy": "injected"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			pod := createPod(t, ns, newPod("web", c.edit))
			if got := containerNames(pod.Spec.InitContainers); !slices.Equal(got, c.initContainers) {
				t.Errorf("init containers are %v, want %v", got, c.initContainers)
			}
			if got := containerNames(pod.Spec.Containers); !slices.Equal(got, c.containers) {
				t.Errorf("containers are %v, want %v", got, c.containers)
			}
			event := creation(t, ns, pod.Name)
			logged := loggedDecisions(t, ns, pod.Name)
			for template, code := range c.reasons {
				wantReason(t, event, template, code)
				if logged[template] != code {
					t.Errorf("Pillion's log says %v of template %q, want %s", logged[template], template, code)
				}
			}
			wantCalls(t, event, calledOnce)
			wantSameAsCommand(t, pod)
		})
	}
}

// loggedDecisions is what Pillion's log says about a pod.
func loggedDecisions(t *testing.T, ns, pod string) map[string]any {
	t.Helper()
	for _, line := range env.pillion.Decided(ns) {
		if decisions, ok := line["decisions"].(map[string]any); ok && line["pod"] == pod {
			return decisions
		}
	}
	t.Fatalf("Pillion's log has no line about pod %s/%s with decisions: %v", ns, pod, env.pillion.Decided(ns))
	return nil
}

// TestPodOptsIn checks that a pod can opt in, through the other entry, if its namespace has no
// label.
func TestPodOptsIn(t *testing.T) {
	t.Parallel()
	ns := plainNamespace(t)
	pod := createPod(t, ns, newPod("web", func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }))
	wantLogger(t, pod)
	wantCalls(t, creation(t, ns, pod.Name), "round_0 pillion/pod.mutate.pillion.dev mutated=true")
}

// TestPresent checks that a pod that already has everything, for example a copied one, costs a call
// and is unchanged.
func TestPresent(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	first := createPod(t, ns, newPod("first"))
	wantLogger(t, first)
	again := createPod(t, ns, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "again", Labels: first.Labels, Annotations: first.Annotations},
		Spec:       *first.Spec.DeepCopy(),
	})
	event := creation(t, ns, again.Name)
	wantCalls(t, event, calledInVain)
	if got, want := event.Reason("logger"), creation(t, ns, first.Name).Reason("logger"); got != want {
		t.Errorf("audit annotation is %q, want %q as in the first place", got, want)
	}
	wantLogger(t, again)
}

// TestUnknownNames checks that undeclared names are never silently ignored.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		edit     func(*corev1.Pod)
		warnings []string
	}{
		{"template", requests("+loger"), []string{"loger", "logger"}},
		{"parameter", overrides("logger", "levl", "debug"), []string{"levl", "level"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			client, warnings := warnedClient(t)
			pod, err := client.CoreV1().Pods(ns).Create(testContext(t), newPod("web", c.edit), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			wantLogger(t, pod)
			for _, w := range c.warnings {
				wantWarning(t, warnings, w)
			}
		})
	}
}
