// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

const (
	// waitLimit is far more than anything here takes.
	waitLimit = 30 * time.Second
	pollEvery = 20 * time.Millisecond

	calledOnce   = "round_0 pillion/namespace.mutate.pillion.dev mutated=true"
	calledInVain = "round_0 pillion/namespace.mutate.pillion.dev mutated=false"
	againInVain  = "round_1 pillion/namespace.mutate.pillion.dev mutated=false"
	againMutated = "round_1 pillion/namespace.mutate.pillion.dev mutated=true"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// cleanupContext outlives the test's own.
func cleanupContext() context.Context { return context.Background() }

// fullSize reports whether tests run in their full size, as in make verify.
func fullSize() bool { return os.Getenv("TEST_SIZE") == "full" }

// parallelUnlessFull is for tests whose load takes all CPUs in its full size.
func parallelUnlessFull(t *testing.T) {
	t.Helper()
	if !fullSize() {
		t.Parallel()
	}
}

// skipUnlessFull skips a test that is only in make verify. The reason says what make e2e runs in its place.
func skipUnlessFull(t *testing.T, reason string) {
	t.Helper()
	if !fullSize() {
		t.Skip("only with TEST_SIZE=full (make verify): " + reason)
	}
}

// eventually calls f until it reports no problem, and fails with its last result.
func eventually(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	eventuallyWithin(t, waitLimit, what, f)
}

func eventuallyWithin(t *testing.T, limit time.Duration, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := cluster.Poll(ctx, func() error { return f(ctx) }); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

// namespaceOption changes a namespace before it is created.
type namespaceOption func(*corev1.Namespace)

func withLabel(key, value string) namespaceOption {
	return func(ns *corev1.Namespace) { ns.Labels[key] = value }
}

func withAnnotation(key, value string) namespaceOption {
	return func(ns *corev1.Namespace) { ns.Annotations[key] = value }
}

// plainNamespace makes a namespace that has nothing to do with Pillion.
func plainNamespace(t *testing.T, options ...namespaceOption) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: namespacePrefix(t.Name()),
		Labels:       map[string]string{recordLabel: "true"},
		Annotations:  map[string]string{},
	}}
	for _, o := range options {
		o(ns)
	}
	created, err := env.Client.CoreV1().Namespaces().Create(testContext(t), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	if err := env.WaitForPods(testContext(t), created.Name); err != nil {
		t.Fatalf("namespace %s: %v", created.Name, err)
	}
	return created.Name
}

// optedInNamespace makes a namespace whose pods are injected, and waits until Pillion knows it: its
// view of namespaces follows the API server's by some moments.
func optedInNamespace(t *testing.T, options ...namespaceOption) string {
	t.Helper()
	mark := strings.ToLower(rand.Text())
	options = append(options, withLabel(injectLabel, "enabled"), withAnnotation("seen.pillion.dev/mark", mark))
	ns := plainNamespace(t, options...)
	probe := newPod("seen", restricted, requests("seen"))
	eventually(t, "Pillion sees the namespace's annotations", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods(ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if got := pod.Annotations["e2e.example.com/seen"]; got != mark {
			return fmt.Errorf("the probe pod says %q, want %q", got, mark)
		}
		return nil
	})
	return ns
}

// namespacePrefix makes a namespace's generateName out of a test's name.
func namespacePrefix(test string) string {
	name := strings.ToLower(strings.TrimPrefix(test, "Test"))
	name = regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(name, "-")
	return strings.Trim(name[:min(len(name), 50)], "-") + "-"
}

// newPod is the pod that most tests start from; edits change it.
func newPod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"example.com/owner": `"team" a/b~c`}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "migrate", Image: "registry.example/migrate:1", Args: []string{"up"}}},
			Containers: []corev1.Container{
				{Name: "web", Image: "registry.example/web:1", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}, Env: []corev1.EnvVar{{Name: "MODE", Value: "fast"}}},
				{Name: "worker", Image: "registry.example/worker:1"},
			},
		},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func createPod(t *testing.T, ns string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create pod %s/%s: %v", ns, pod.Name, err)
	}
	return created
}

// creation returns the audit log's event of the request that created the pod, or that was denied.
func creation(t *testing.T, ns, name string) cluster.Event {
	t.Helper()
	event, err := env.Audit.Wait(testContext(t), func(e cluster.Event) bool { return e.CreatesPod(ns, name) })
	if err != nil {
		t.Fatalf("creation of pod %s/%s: %v", ns, name, err)
	}
	return event
}

// wantCalls compares the calls of Pillion's mutating webhook, as the API server recorded them.
func wantCalls(t *testing.T, event cluster.Event, want ...string) {
	t.Helper()
	wantCallsOf(t, event, pillionConfiguration, want...)
}

func wantCallsOf(t *testing.T, event cluster.Event, configuration string, want ...string) {
	t.Helper()
	var got []string
	for _, call := range event.Calls(configuration) {
		got = append(got, call.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls of the mutating webhook configuration %q in the audit log (-want +got):\n%s", configuration, diff)
	}
}

// wantReason checks the code that an audit annotation starts with.
func wantReason(t *testing.T, event cluster.Event, template, code string) {
	t.Helper()
	reason := event.Reason(template)
	if got, sentence, ok := strings.Cut(reason, ": "); !ok || got != code || sentence == "" {
		t.Errorf("audit annotation for template %q is %q, want %q and a sentence; all annotations: %v", template, reason, code, event.Annotations)
	}
}

// installWebhook puts another mutating webhook beside Pillion for the pods of one namespace, and returns
// when the API server calls it. Its name starts with the test's order: "a" before Pillion, "z" behind.
func installWebhook(t *testing.T, ns, order string, w testwebhook.Webhook) (name string) {
	t.Helper()
	name = registerWebhook(t, ns, order, w)
	if err := env.WaitForWebhook(testContext(t), ns, cluster.Called(name)); err != nil {
		t.Fatalf("webhook %s: %v", name, err)
	}
	return name
}

// registerWebhook is installWebhook for a webhook that not every pod gets by.
func registerWebhook(t *testing.T, ns, order string, w testwebhook.Webhook) (name string) {
	t.Helper()
	w.Name = order + "-" + ns
	if w.Namespaces == nil {
		w.Namespaces = map[string]string{corev1.LabelMetadataName: ns}
	}
	if err := env.webhooks.Install(testContext(t), env.Client, w); err != nil {
		t.Fatalf("install webhook %s: %v", w.Name, err)
	}
	t.Cleanup(func() {
		if err := env.webhooks.Uninstall(cleanupContext(), env.Client, w.Name); err != nil {
			t.Errorf("uninstall webhook %s: %v", w.Name, err)
		}
	})
	return w.Name
}

func containerNames(containers []corev1.Container) []string {
	var names []string
	for _, c := range containers {
		names = append(names, c.Name)
	}
	return names
}

func container(t *testing.T, pod *corev1.Pod, name string) corev1.Container {
	t.Helper()
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("pod %s has no container %q but %v and %v", pod.Name, name, containerNames(pod.Spec.InitContainers), containerNames(pod.Spec.Containers))
	return corev1.Container{}
}

func mountPaths(c corev1.Container) []string {
	var paths []string
	for _, m := range c.VolumeMounts {
		paths = append(paths, m.MountPath)
	}
	return paths
}

// wantLogger checks that the pod has what the template "logger" gives to every pod.
func wantLogger(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if len(pod.Spec.InitContainers) == 0 || pod.Spec.InitContainers[0].Name != "logger" {
		t.Fatalf("init containers of pod %s are %v, want logger first", pod.Name, containerNames(pod.Spec.InitContainers))
	}
	if policy := pod.Spec.InitContainers[0].RestartPolicy; policy == nil || *policy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("restartPolicy of logger is not Always: %v", policy)
	}
	if pod.Annotations["logger.pillion.dev/injected"] == "" {
		t.Errorf("no annotation logger.pillion.dev/injected in %v", pod.Annotations)
	}
	for _, c := range pod.Spec.Containers {
		if !slices.Contains(mountPaths(c), "/var/log/app") {
			t.Errorf("container %s has no mount at /var/log/app but %v", c.Name, mountPaths(c))
		}
	}
}

// wantNoLogger is the opposite of wantLogger.
func wantNoLogger(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if slices.Contains(containerNames(pod.Spec.InitContainers), "logger") || pod.Annotations["logger.pillion.dev/injected"] != "" {
		t.Errorf("pod %s was injected: init containers %v, annotations %v", pod.Name, containerNames(pod.Spec.InitContainers), pod.Annotations)
	}
}
