// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestNodeRestart cuts the power of the node: the kubelet, containerd, kube-proxy and all containers end at
// once. When the node starts again, everything recovers without a manual action.
func TestNodeRestart(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	apply(t, ns, web)
	before := containers(append(readyPods(t, ns, "app=web", 1), readyPods(t, pillionNamespace, "", 3)...))
	disrupt(t, true, func(t *testing.T, l *load) {
		killed, err := env.Crash(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		figure(t, "killed processes", killed)
		started := time.Now()
		if err := env.Boot(testContext(t)); err != nil {
			t.Fatal(err)
		}
		figure(t, "until the node was ready", time.Since(started))
		newContainers(t, pillionNamespace, pillionSelector, 2, before)
		figure(t, "until the replicas of Pillion were ready", time.Since(started))
		newContainers(t, pillionNamespace, "", 3, before)
		for _, pod := range newContainers(t, ns, "app=web", 1, before) {
			wantSidecar(t, &pod)
		}
		figure(t, "until the pod of a Deployment was ready", time.Since(started))
		apply(t, l.ns, web)
		for _, pod := range readyPods(t, l.ns, "app=web", 1) {
			wantSidecar(t, &pod)
		}
		figure(t, "until a new pod of a Deployment was ready", time.Since(started))
	})
}

// containers returns the IDs of all containers of pods.
func containers(of []corev1.Pod) map[string]bool {
	ids := map[string]bool{}
	for _, pod := range of {
		for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			ids[s.ContainerID] = true
		}
	}
	return ids
}

// newContainers waits until n pods are ready and none has a container from before. Right after a start of the
// kubelet, the status of a pod is that of before.
func newContainers(t *testing.T, ns, selector string, n int, before map[string]bool) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods in %s have new containers", n, ns), func(ctx context.Context) (err error) {
		if found, err = pods(ctx, ns, selector); err != nil {
			return err
		}
		for i := range found {
			for id := range containers(found[i : i+1]) {
				if before[id] {
					return errors.New(stateOf(&found[i]))
				}
			}
			if !ready(&found[i]) {
				return errors.New(stateOf(&found[i]))
			}
		}
		if len(found) != n {
			return fmt.Errorf("there are %d pods", len(found))
		}
		return nil
	})
	return found
}
