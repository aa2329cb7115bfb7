// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// wantSameAsCommand checks that the stored pod is what `pillion inject` makes of the pod that the API
// server sent, with Kubernetes' defaults for missing fields. Both use the same engine, so any difference
// comes from the webhook or from the command. The args describe the namespace to the command.
func wantSameAsCommand(t *testing.T, stored *corev1.Pod, args ...string) {
	t.Helper()
	injected := injectOffline(t, recordedPod(t, stored), stored.Namespace, append(args, "-o", "json")...)
	want := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(injected, want); err != nil {
		t.Fatalf("pillion inject printed what is not a Pod: %v\n%s", err, injected)
	}
	defaults.SetObjectDefaults_Pod(want)
	if diff := cmp.Diff(podText(t, want), podText(t, stored)); diff != "" {
		t.Errorf("pod %s/%s differs (-pillion inject +stored):\n%s", stored.Namespace, stored.Name, diff)
	}
}

// recordedPod returns the stored pod as it was just before Pillion received it.
func recordedPod(t *testing.T, stored *corev1.Pod) []byte {
	t.Helper()
	calls := env.webhooks.Calls(recorder, stored)
	if len(calls) == 0 {
		t.Fatalf("the recorder was not called for pod %s/%s", stored.Namespace, stored.Name)
	}
	return calls[0].Object
}

func injectOffline(t *testing.T, pod []byte, ns string, args ...string) []byte {
	t.Helper()
	args = append(args, "--namespace", ns, "--namespace-label", injectLabel+"=enabled")
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	out, err := cluster.Inject(testContext(t), env.binary, pod, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// podText is what a pod's owner and its webhooks can decide about, in a form that diffs well.
func podText(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"labels":      pod.Labels,
		"annotations": pod.Annotations,
		"spec":        pod.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
