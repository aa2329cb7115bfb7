// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// TestLaterRequests checks that no request about an existing pod waits for Pillion. It runs alone,
// because only the API server's metrics show a call of a validating webhook, and they have no label
// for namespaces.
func TestLaterRequests(t *testing.T) {
	requests := []struct {
		name, verb, subresource string
		do                      func(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error
	}{
		{"update", "update", "", updateLabels},
		{"patch", "patch", "", patchImage},
		{"ephemeral container", "update", "ephemeralcontainers", debugContainer},
		{"status patch", "patch", "status", patchStatus},
		{"resize", "patch", "resize", resize},
		{"binding", "create", "binding", bind},
		{"eviction", "create", "eviction", evict},
		{"delete", "delete", "", deletePod},
	}
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			ns := optedInNamespace(t)
			pod := createPod(t, ns, newPod("web"))
			wantLogger(t, pod)
			made := creation(t, ns, pod.Name).AuditID
			before := pillionCalls(t)
			if err := r.do(testContext(t), env.Client.CoreV1().Pods(ns), pod); err != nil {
				t.Fatal(err)
			}
			event, err := env.Audit.Wait(testContext(t), func(e cluster.Event) bool {
				return e.ObjectRef != nil && e.ObjectRef.Namespace == ns && e.ObjectRef.Name == pod.Name &&
					e.Verb == r.verb && e.ObjectRef.Subresource == r.subresource && e.AuditID != made
			})
			if err != nil {
				t.Fatal(err)
			}
			wantCalls(t, event)
			if after := pillionCalls(t); after != before {
				t.Errorf("the API server has called Pillion %v times, and %v times before the request", after, before)
			}
		})
	}
}

// pillionCalls is how often the API server has called any of Pillion's webhooks.
func pillionCalls(t *testing.T) float64 {
	t.Helper()
	metrics, err := env.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range env.manifests.Mutating.Webhooks {
		names = append(names, w.Name)
	}
	for _, w := range env.manifests.Validating.Webhooks {
		names = append(names, w.Name)
	}
	var calls float64
	for _, name := range names {
		calls += metrics.Counter(cluster.CallsMetric, map[string]string{"name": name})
	}
	if calls == 0 {
		t.Fatalf("%s knows nothing of %v", cluster.CallsMetric, names)
	}
	return calls
}

func updateLabels(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	pod.Labels["changed"] = "yes"
	_, err := pods.Update(ctx, pod, metav1.UpdateOptions{})
	return err
}

func patchImage(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"web","image":"registry.example/web:2"}]}}`), metav1.PatchOptions{})
	return err
}

func debugContainer(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "registry.example/debug:1"},
	}}
	_, err := pods.UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{})
	return err
}

func patchStatus(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), metav1.PatchOptions{}, "status")
	return err
}

func resize(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"initContainers":[{"name":"logger","resources":{"requests":{"cpu":"60m"}}}]}}`), metav1.PatchOptions{}, "resize")
	return err
}

func bind(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	return pods.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "some-node"},
	}, metav1.CreateOptions{})
}

func evict(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}})
}

func deletePod(ctx context.Context, pods typedv1.PodInterface, pod *corev1.Pod) error {
	return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{})
}
