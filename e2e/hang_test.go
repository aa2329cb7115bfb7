// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// TestHang checks replicas that do not answer the mutating webhook's call in time, and answer the
// validating webhook's call. No pod is allowed without its sidecar, although the template's mode is
// Warn. The pod is denied with the advice to create it again, as its controller does.
func TestHang(t *testing.T) {
	t.Parallel()
	pair := newHangingReplicas(t, env.manifests)
	pair.mutate.Hang()
	_, err := pair.create(testContext(t), newPod("alone"))
	wantForbidden(t, err, "shield: not_injected at /spec/initContainers/-: the pod has nothing of it: the mutating webhook was not called or did not answer in time; create the pod again")
	wantFailedOpen(t, pair.namespace, "alone")

	createDeployment(t, pair.namespace)
	if message := failedCreate(t, pair.namespace); !strings.Contains(message, "create the pod again") {
		t.Errorf("the ReplicaSet's event is %q", message)
	}
	pair.mutate.Any()
	if pod := onlyPod(t, pair.namespace); findContainer(pod, "shield") == nil {
		t.Errorf("the controller's pod has %v", containerNames(pod.Spec.InitContainers))
	}
}

// TestHangFailOpen checks that with the component fail-open, such a pod is allowed with a warning.
func TestHangFailOpen(t *testing.T) {
	t.Parallel()
	manifests := renderWith(t, "base", "fail-open")
	var flags []string
	for _, arg := range deploymentOf(t, manifests).Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--uninjected-pods=") {
			flags = append(flags, arg)
		}
	}
	pair := newHangingReplicas(t, manifests, flags...)
	pair.mutate.Hang()
	pod := wantVerdict(t, pair.namespace, newPod("alone"), says(warned, "shield", "not_injected at /spec/initContainers/-").alone())
	if pod == nil || findContainer(pod, "shield") != nil {
		t.Fatalf("the pod is %v", pod)
	}
	wantFailedOpen(t, pair.namespace, "alone")
}

// TestForgedFailOpen checks that a forged record does not turn a denial into a failure, which
// fail-open would allow and which would alert the operator.
func TestForgedFailOpen(t *testing.T) {
	t.Parallel()
	pair := newReplicasOf(t, renderWith(t, "base", "fail-open"), []string{"old", "image"}, "--uninjected-pods=Warn")
	pair.wantForgedDenied(testContext(t), t, "forged")
	if open := creation(t, pair.namespace, "forged").FailedOpen(); len(open) > 0 {
		t.Errorf("the webhooks that failed open are %v", open)
	}
}

// newHangingReplicas are two replicas with a template in mode Warn, which API servers wait for one second for.
func newHangingReplicas(t *testing.T, m *cluster.Manifests, flags ...string) *replicas {
	t.Helper()
	impatient := *m
	impatient.Mutating = m.Mutating.DeepCopy()
	for i := range impatient.Mutating.Webhooks {
		impatient.Mutating.Webhooks[i].TimeoutSeconds = new(int32(1))
	}
	pair := newReplicasOf(t, &impatient, []string{"lax", "lax"}, flags...)
	if policy := *impatient.Mutating.Webhooks[0].FailurePolicy; policy != admissionregistrationv1.Ignore {
		t.Fatalf("the mutating webhook's failurePolicy is %s", policy)
	}
	if pod := dryRun(t, pair.namespace, newPod("before")); findContainer(pod, "shield") == nil {
		t.Fatalf("while the replicas answer, the pod has %v", containerNames(pod.Spec.InitContainers))
	}
	return pair
}

func wantFailedOpen(t *testing.T, ns, pod string) {
	t.Helper()
	if open := creation(t, ns, pod).FailedOpen(); len(open) != 1 {
		t.Errorf("the webhooks that failed open are %v", open)
	}
}
