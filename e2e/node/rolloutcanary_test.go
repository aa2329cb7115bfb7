// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// testRolloutCanary brings a canary to 20 of 100 workloads in place. It ends, comes again, and is promoted.
func testRolloutCanary(t *testing.T, ns string) {
	const workloads, share = 20, 20
	base := sidecar{name: "base", image: StandIn, memory: "16Mi"}
	canary := sidecar{name: "base-next", container: "base", image: NextStandIn, memory: base.memory, spec: fmt.Sprintf("replaces: base, share: %d,", share)}
	base.use(t, ns, nil)
	var manifest strings.Builder
	for i := range workloads {
		manifest.WriteString(deploymentOf(fmt.Sprintf("web-%d", i), 1, "base", ""))
	}
	apply(t, ns, manifest.String())
	r := running(t, ns, workloads)
	selected := func(pod *corev1.Pod) bool { return hundredth(ns, "Deployment", pod.Labels["app"], "base-next") < share }
	chosen := 0
	var first *corev1.Pod
	for _, pod := range r.before {
		if selected(&pod) {
			chosen, first = chosen+1, &pod
		}
	}
	if chosen != workloads*share/100 {
		t.Fatalf("the share selects %d of %d workloads", chosen, workloads)
	}
	canaries := func(pod *corev1.Pod) sidecar {
		if selected(pod) {
			return canary
		}
		return base
	}
	allBase := func(*corev1.Pod) sidecar { return base }
	update := func(pods int, want func(*corev1.Pod) sidecar) {
		t.Helper()
		if out := mustRollout(t, ns, "--parallel", "20"); !strings.Contains(out, fmt.Sprintf("Updated %d pods.", pods)) {
			t.Errorf("want %d pods to be updated: %s", pods, out)
		}
		r.want(t, want)
	}
	end := func() {
		t.Helper()
		kubectl(t, "delete", "clustersidecartemplate", canary.name)
		base.use(t, ns, first)
	}
	canary.use(t, ns, first)
	update(chosen, canaries)
	end()
	update(chosen, allBase)
	canary.memory = "24Mi" // the next one
	canary.use(t, ns, first)
	update(chosen, canaries)
	base.image, base.memory = canary.image, canary.memory
	end()
	r.leftover = canary.name
	update(workloads-chosen, allBase)
}

// hundredth is what the page about canaries says: which workloads a share selects.
func hundredth(namespace, kind, name, template string) int {
	sum := sha256.Sum256([]byte(strings.Join([]string{namespace, kind, name, template, ""}, "\x00")))
	return int(binary.BigEndian.Uint64(sum[:8]) % 100)
}
