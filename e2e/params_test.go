// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestParameters: the pod's word is above the namespace's, and that above the template's default.
func TestParameters(t *testing.T) {
	t.Parallel()
	const level, cpu = "logger.pillion.dev/level", "logger.pillion.dev/cpu"
	cases := []struct {
		name           string
		namespace, pod map[string]string
		wantArg        string
		wantCPU        string
	}{
		{"default", nil, nil, "--level=info", "50m"},
		{"namespace over default", map[string]string{level: "warn", cpu: "70m"}, nil, "--level=warn", "70m"},
		{"pod over default", nil, map[string]string{level: "debug", cpu: "0.08"}, "--level=debug", "80m"},
		{"pod over namespace", map[string]string{level: "warn", cpu: "70m"}, map[string]string{level: "debug"}, "--level=debug", "70m"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var options []namespaceOption
			var args []string
			for key, value := range c.namespace {
				options = append(options, withAnnotation(key, value))
				args = append(args, "--namespace-annotation", key+"="+value)
			}
			ns := optedInNamespace(t, options...)
			pod := createPod(t, ns, newPod("web", func(p *corev1.Pod) {
				maps.Copy(p.Annotations, c.pod)
			}))
			logger := container(t, pod, "logger")
			if want := []string{c.wantArg, "--service=web"}; !slices.Equal(logger.Args, want) {
				t.Errorf("args are %q, want %q", logger.Args, want)
			}
			if got := logger.Resources.Requests.Cpu().String(); got != c.wantCPU {
				t.Errorf("cpu request is %s, want %s", got, c.wantCPU)
			}
			if got := "--level=" + pod.Annotations["e2e.example.com/level"]; got != c.wantArg {
				t.Errorf("annotation says %s, want %s", got, c.wantArg)
			}
			wantCalls(t, creation(t, ns, pod.Name), calledOnce)
			wantSameAsCommand(t, pod, args...)
		})
	}
}

// TestParameterIsText: an annotation's value changes the leaf that it stands in and nothing else.
func TestParameterIsText(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	hostile := "x\"]\n      - name: intruder\n        image: ${params.level}"
	pod := createPod(t, ns, newPod("web", requests("echo"), overrides("echo", "text", hostile)))
	if got, want := containerNames(pod.Spec.InitContainers), []string{"echo", "migrate"}; !slices.Equal(got, want) {
		t.Errorf("init containers are %v, want %v", got, want)
	}
	if got, want := container(t, pod, "echo").Args, []string{"--text=" + hostile}; !slices.Equal(got, want) {
		t.Errorf("args are %q, want %q", got, want)
	}
	wantSameAsCommand(t, pod)
}
