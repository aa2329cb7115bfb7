// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// TestFirstSteps runs the page's five commands on a new cluster, one right after the other. Only the nodes are
// simulated.
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
			(&controlled{i.Cluster}).start(t)
			if err := i.WaitForPods(testContext(t), "default"); err != nil {
				t.Fatal(err)
			}
		},
	})
}
