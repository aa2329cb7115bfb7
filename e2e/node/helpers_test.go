// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	injectLabel      = "pillion.dev/inject"
	pillionNamespace = "pillion-system"
	// waitWithin is far longer than anything that a test waits for.
	waitWithin = 3 * time.Minute
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitWithin)
	t.Cleanup(cancel)
	return ctx
}

// kubectl runs kubectl as users do.
func kubectl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := env.RunKubectl(testContext(t), nil, args...); err != nil {
		t.Fatal(err)
	}
}

// apply applies YAML.
func apply(t *testing.T, ns, manifest string) {
	t.Helper()
	if _, err := env.RunKubectl(testContext(t), []byte(manifest), "apply", "--server-side", "--namespace", ns, "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
}

// eventually polls f, and fails the test with its last error and with what the node says.
func eventually(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx := testContext(t)
	if err := cluster.Poll(ctx, func() error { return f(ctx) }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// optedInNamespace creates a namespace with the label. It is deleted after the test.
func optedInNamespace(t *testing.T) string {
	t.Helper()
	return namespace(t, map[string]string{injectLabel: "enabled"})
}

func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	return namespaceNamed(t, "t-"+rand.String(6), labels)
}

func namespaceNamed(t *testing.T, name string, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := env.Client.CoreV1().Namespaces().Create(testContext(t), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeNamespace(t, ns.Name) })
	eventually(t, "the ServiceAccount default of "+ns.Name, func(ctx context.Context) error {
		_, err := env.Client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

// removeNamespace deletes a namespace without waiting for grace periods.
func removeNamespace(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(context.Background(), waitWithin)
	defer cancel()
	if t.Failed() {
		t.Log(describe(ctx, ns))
	}
	if err := env.Client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	_ = env.Client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
}

// describe returns the state of a namespace's pods, its events, and what the controller has logged about it.
func describe(ctx context.Context, ns string) string {
	var b strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "-n", ns, "-o", "wide"},
		{"get", "events", "-n", ns, "--sort-by=.metadata.creationTimestamp"},
	} {
		out, err := env.RunKubectl(ctx, nil, args...)
		fmt.Fprintf(&b, "%s%v\n", out, errors.Unwrap(err))
	}
	out, err := env.RunKubectl(ctx, nil, "-n", pillionNamespace, "logs", "-l", controllerSelector, "--tail=-1")
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, ns) {
			b.WriteString(line)
		}
	}
	if err != nil {
		fmt.Fprintf(&b, "the log of the controller: %v\n", err)
	}
	return b.String()
}

// pods returns the pods of a namespace that match the selector.
func pods(ctx context.Context, ns, selector string) ([]corev1.Pod, error) {
	list, err := env.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// readyPods waits until exactly n pods match, all of them ready, and returns them.
func readyPods(t *testing.T, ns, selector string, n int) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	eventually(t, fmt.Sprintf("%d ready pods in %s", n, ns), func(ctx context.Context) (err error) {
		if found, err = pods(ctx, ns, selector); err != nil {
			return err
		}
		for i := range found {
			if !ready(&found[i]) || found[i].DeletionTimestamp != nil {
				return fmt.Errorf("%s", stateOf(&found[i]))
			}
		}
		if len(found) != n {
			return fmt.Errorf("there are %d", len(found))
		}
		return nil
	})
	return found
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// stateOf describes a pod in one line.
func stateOf(pod *corev1.Pod) string {
	text := fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		switch {
		case s.State.Waiting != nil:
			text += fmt.Sprintf(", %s waits: %s %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
		case s.State.Terminated != nil:
			text += fmt.Sprintf(", %s ended with %d: %s", s.Name, s.State.Terminated.ExitCode, s.State.Terminated.Reason)
		case s.State.Running != nil:
			text += fmt.Sprintf(", %s runs (started %t, ready %t)", s.Name, s.Started != nil && *s.Started, s.Ready)
		}
	}
	return text
}

// status returns the status of a container or sidecar, or nil.
func status(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	all := append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...)
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// decisions returns what the API server recorded about the creation of a namespace's pods.
func decisions(pod *corev1.Pod) string {
	return decisionsFor(pod.Namespace, func(cluster.Event) bool { return true })
}

// decisionsFor returns what the API server recorded about the creation of some pods: the requests that were
// denied before, the webhooks that it called, and what Pillion said.
func decisionsFor(ns string, about func(cluster.Event) bool) string {
	var b strings.Builder
	_, _, err := env.Audit.Find(func(e cluster.Event) bool {
		if e.ObjectRef == nil || e.ObjectRef.Namespace != ns || e.Verb != "create" || e.ObjectRef.Subresource != "" || !about(e) {
			return false
		}
		fmt.Fprintf(&b, "%s create %s: %d, calls %v, failed open %v, decisions %v, judgement %v\n", e.RequestReceivedTimestamp.Format("05.000"),
			e.ObjectRef.Name, e.ResponseStatus.Code, e.Calls(""), e.FailedOpen(), e.Reasons(), e.Judgement())
		return false
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

// wantSidecar checks that the kubelet runs both the app and the sidecar.
func wantSidecar(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, name := range []string{"helper", "app"} {
		if s := status(pod, name); s == nil || s.State.Running == nil {
			t.Errorf("%s does not run: %s\n%s", name, stateOf(pod), decisions(pod))
		}
	}
}
