// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFirstSteps runs the page's five commands on a new cluster, and nothing else. Only the test's nodes are
// simulated, and it waits where the page says that API servers need some seconds.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	i := &installed{Cluster: newCluster(t), namespace: "probes"}
	u := i.newOperator(t)
	commands := commandsOf(t, "manifests/docs/first-steps.md")
	if len(commands) != 5 {
		t.Errorf("the page has %d commands", len(commands))
	}
	u.follows(t, commands, map[string]func(){
		"kubectl -n pillion-system rollout": func() {
			u.nodes(t, pillionNamespace)
			u.installed.run(t)
		},
		"kubectl run web": func() {
			if err := i.WaitForPods(testContext(t), "default"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the namespace has opted in, and the template is in use", func(ctx context.Context) error {
				pod := shopPod()
				pod.GenerateName, pod.Annotations = "probe-", nil
				pod, err := i.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil && pod.Annotations["hello.pillion.dev/injected"] == "" {
					err = errNotInjected
				}
				return err
			})
		},
	})
}
