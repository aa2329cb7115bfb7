// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// TestTamperDefaults is the counterpart of TestHarmless. Defaults of Kubernetes are not a finding.
// If another webhook sets different values, or changes a value that Kubernetes normalized, there is
// a finding.
func TestTamperDefaults(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	cases := tamperedDefaults()
	last := moments()[2]
	installWebhook(t, ns, last.order, testwebhook.Webhook{Reinvocation: last.policy, Mutate: testwebhook.Edit(tamper(cases))})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, ns, "keeper", denied, last)
		})
	}
}

func tamperedDefaults() []tampering {
	changed := func(name, path string, edit func(*corev1.Container)) tampering {
		return tampering{name: name, edit: inContainer(edit), finding: "altered at " + sidecarPath + path}
	}
	return []tampering{
		changed("probe never fails", "/livenessProbe/failureThreshold", func(c *corev1.Container) { c.LivenessProbe.FailureThreshold = 1000 }),
		changed("probe of another path", "/livenessProbe/httpGet/path", func(c *corev1.Container) { c.LivenessProbe.HTTPGet.Path = "/other" }),
		changed("probe of another scheme", "/livenessProbe/httpGet/scheme", func(c *corev1.Container) { c.LivenessProbe.HTTPGet.Scheme = corev1.URISchemeHTTPS }),
		changed("probe of another service", "/startupProbe/grpc/service", func(c *corev1.Container) { c.StartupProbe.GRPC.Service = new("other") }),
		changed("probe of another period", "/readinessProbe/periodSeconds", func(c *corev1.Container) { c.ReadinessProbe.PeriodSeconds = 500 }),
		changed("hook of another path", "/lifecycle/preStop/httpGet/path", func(c *corev1.Container) { c.Lifecycle.PreStop.HTTPGet.Path = "/other" }),
		changed("message in another file", "/terminationMessagePath", func(c *corev1.Container) { c.TerminationMessagePath = "/data/message" }),
		changed("message from the log", "/terminationMessagePolicy", func(c *corev1.Container) {
			c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}),
		changed("other divisor", "/env/1/valueFrom/resourceFieldRef/divisor", func(c *corev1.Container) {
			c.Env[1].ValueFrom.ResourceFieldRef.Divisor = resource.MustParse("1m")
		}),
		changed("secret no longer optional", "/env/2/valueFrom/secretKeyRef/optional", func(c *corev1.Container) {
			c.Env[2].ValueFrom.SecretKeyRef.Optional = new(false)
		}),
		changed("other prefix", "/envFrom", func(c *corev1.Container) { c.EnvFrom[0].Prefix = "OTHER_" }),
		changed("other limit", "/resources/limits/cpu", func(c *corev1.Container) { c.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2") }),
		changed("never pulled", "/imagePullPolicy", func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullNever }),
		changed("no seccomp", "/securityContext/seccompProfile/type", func(c *corev1.Container) {
			c.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		}),
		changed("standard input", "/stdin", func(c *corev1.Container) { c.Stdin = true }),
		changed("other working directory", "/workingDir", func(c *corev1.Container) { c.WorkingDir = "/data" }),
		changed("mount read-only", "/volumeMounts/", func(c *corev1.Container) { c.VolumeMounts[0].ReadOnly = true }),
		changed("part of the volume", "/volumeMounts/", func(c *corev1.Container) { c.VolumeMounts[0].SubPath = "part" }),
		{
			name: "volume without a limit", finding: "conflict at /spec/volumes/",
			edit: func(p *corev1.Pod, _ string) {
				for i := range p.Spec.Volumes {
					if p.Spec.Volumes[i].Name == "keeper-data" {
						p.Spec.Volumes[i].EmptyDir.SizeLimit = nil
					}
				}
			},
		},
	}
}

// TestSealed checks that no webhook can mount the ServiceAccount's token into a sidecar that must
// not have it.
func TestSealed(t *testing.T) {
	t.Parallel()
	const template = "sealed"
	cases := []tampering{
		{
			name: "empty volume unmounted",
			edit: inContainer(func(c *corev1.Container) { stripMount(c, tokenPath) }),
		}, {
			name: "token mounted instead",
			edit: func(p *corev1.Pod, template string) {
				c := findContainer(p, template)
				app := p.Spec.Containers[0]
				i := slices.IndexFunc(app.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath })
				stripMount(c, tokenPath)
				c.VolumeMounts = append(c.VolumeMounts, app.VolumeMounts[i])
			},
		},
	}
	for _, m := range moments() {
		ns := optedInNamespace(t)
		installWebhook(t, ns, m.order, testwebhook.Webhook{Reinvocation: m.policy, Mutate: testwebhook.Edit(tamper(cases))})
		for _, c := range cases {
			t.Run(c.name+" "+m.name, func(t *testing.T) {
				pod := newPod(slug(c.name), requests(template), func(p *corev1.Pod) {
					p.Annotations[tamperAnnotation], p.Annotations[targetAnnotation] = slug(c.name), template
				})
				created, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{})
				if err == nil {
					if got := wantToken(created, findContainer(created, template), false); got != nil {
						t.Errorf("the pod is allowed, and %v; audit: %v", got, creation(t, ns, pod.Name).Judgement())
					}
					return
				}
				wantForbidden(t, err, template+": ")
			})
		}
	}
}
