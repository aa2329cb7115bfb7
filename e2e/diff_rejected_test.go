// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (d *differ) denied(t *testing.T) {
	guard := `---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: guard}
spec:
  required: true
  match: {podSelector: {matchLabels: {app: api}}}
  pod: {spec: {containers: [{name: web, image: "registry.example/guard:1"}]}}
`
	d.write(t, guard)
	got := d.diff(t, "changes", "-f new.yaml", 1, "guard")
	wantDiff(t, got, diffed{Template: "guard", Rejected: counted{1, 1}, Causes: causes("rejected", "", "Pillion", "the pod has its own container named web")})
	d.apply(t, "changes", guard)
	d.created(t, "changes", "api", deniedBy("admission webhook"))
	got = d.diff(t, "changes", "--without guard", 1, "guard")
	wantDiff(t, got, diffed{Template: "guard", Accepted: counted{1, 1}, Causes: causes("accepted", "", "Pillion", "")})
	if out, code, err := d.run(testContext(t), "kubectl delete clustersidecartemplate guard"); err != nil || code != 0 {
		t.Fatalf("%v: %s", err, out)
	}
	d.created(t, "changes", "api", withImage("registry.example/agent:1"))
}

func (d *differ) podSecurity(t *testing.T) {
	d.namespace(t, "safe", map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})
	d.apply(t, "safe", appDeployment("web", 1))
	d.waitFor(t, "safe", 1, "registry.example/agent:1")
	privileged := agentSpec("args: [run]", "args: [run], securityContext: {privileged: true}")
	d.write(t, privileged)
	got := d.diff(t, "safe", "-f new.yaml", 1, "agent")
	wantDiff(t, got, diffed{Template: "agent", Rejected: counted{1, 1}, Causes: causes("rejected", "", "Pod Security", "baseline")})
	d.apply(t, "safe", privileged)
	d.created(t, "safe", "web", deniedBy("violates PodSecurity"))
	d.apply(t, "safe", agentSpec())
	d.created(t, "safe", "web", withImage("registry.example/agent:1"))
}

// quota checks a quota that has room for one of three pods with the sidecar.
func (d *differ) quota(t *testing.T) {
	d.namespace(t, "limited", nil)
	d.apply(t, "limited", appDeployment("needy", 3))
	d.waitFor(t, "limited", 3, "")
	used := func(memory string) {
		t.Helper()
		eventually(t, "nothing else changes the quota", func(ctx context.Context) error { // as the API server does for each pod
			q, err := d.Client.CoreV1().ResourceQuotas("limited").Get(ctx, "memory", metav1.GetOptions{})
			if err != nil {
				return err
			}
			q.Status.Hard = q.Spec.Hard
			q.Status.Used = corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse(memory)}
			_, err = d.Client.CoreV1().ResourceQuotas("limited").UpdateStatus(ctx, q, metav1.UpdateOptions{})
			return err
		})
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "memory"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("360Mi")}
	if _, err := d.Client.CoreV1().ResourceQuotas("limited").Create(testContext(t), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used("300Mi") // the cluster has no controller that counts
	needy := `---
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: needy, namespace: limited}
spec:
  default: true
  pod: {spec: {initContainers: [{name: needy, image: "registry.example/needy:1", restartPolicy: Always, resources: {requests: {memory: 50Mi}}}]}}
`
	d.write(t, needy)
	got := d.diff(t, "limited", "-f new.yaml", 1, "limited/needy")
	wantDiff(t, got, diffed{Template: "limited/needy", Gets: counted{1, 1}, Rejected: counted{2, 1}, Causes: causes("rejected", "", "ResourceQuota memory", "each new pod needs 50Mi more of requests.memory")})
	d.apply(t, "limited", needy)
	used("200Mi") // one of the three pods is deleted
	d.created(t, "limited", "needy", withImage("registry.example/needy:1"))
	used("250Mi") // it has been replaced, and the next one is deleted
	d.created(t, "limited", "needy", deniedBy("exceeded quota: memory"))
}
