// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestParameters checks that the pod's value has precedence over the namespace's, and the
// namespace's over the template's default.
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

// TestParameterIsText checks that an annotation's value changes only the leaf that it is in.
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

// TestNamespaceJustMade checks that a pod gets its namespace's parameters even if it is created
// right after the namespace, when Pillion may not know the namespace yet. The same holds right
// after the namespace gets its label.
func TestNamespaceJustMade(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		ns, err := env.Client.CoreV1().Namespaces().Create(testContext(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "just-made-", Labels: map[string]string{injectLabel: "enabled"}, Annotations: map[string]string{"logger.pillion.dev/level": "debug"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = env.Client.CoreV1().ServiceAccounts(ns.Name).Create(testContext(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		pod := createPod(t, ns.Name, newPod(fmt.Sprint("web-", i)))
		if got, want := container(t, pod, "logger").Args[0], "--level=debug"; got != want {
			t.Errorf("argument %q, want %q", got, want)
		}
	}
	for i := range 20 {
		ns := plainNamespace(t)
		_, err := env.Client.CoreV1().Namespaces().Patch(testContext(t), ns, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"enabled"}}}`, injectLabel), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := createPod(t, ns, newPod(fmt.Sprint("web-", i)))
		called := len(creation(t, ns, pod.Name).Calls(pillionConfiguration)) > 0
		if injected := pod.Annotations["logger.pillion.dev/injected"] != ""; called != injected {
			t.Errorf("the API server called: %t, injected: %t", called, injected)
		}
	}
}
