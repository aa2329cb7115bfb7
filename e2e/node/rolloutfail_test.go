// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testRolloutKilled kills the process when a pod has the new image, and before that is recorded. The next run ends
// what it has begun.
func testRolloutKilled(t *testing.T, ns string) {
	s := sidecar{name: "killed", image: StandIn, memory: "16Mi", probe: true, args: `, "-ready=5s"`}
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", 2, s.name, ""))
	r := running(t, ns, 2)
	record := r.one().Annotations[s.name+recordSuffix]
	s.image, s.memory = NextStandIn, "24Mi"
	s.use(t, ns, nil)
	command := startRollout(t, ns, "--max-unavailable", "1")
	eventually(t, "a pod has the new image", func(ctx context.Context) error {
		_, err := newImage(ctx, ns, s)
		return err
	})
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		t.Errorf("the rollout has ended: %s", command.output)
	}
	half, err := newImage(testContext(t), ns, s)
	if err != nil {
		t.Fatal(err)
	}
	if is := half.Annotations[s.name+recordSuffix]; is != record {
		t.Fatalf("the rollout was not killed before its last step: the record is %s, was %s: %s", is, record, command.output)
	}
	mustRollout(t, ns)
	r.wantAll(t, s)
	for i, pod := range podsIn(t, ns) {
		if n := statusIn(&pod, s.name).RestartCount; n != 1 {
			t.Errorf("the sidecar of pod %d was started again %d times, want 1", i, n)
		}
	}
}

// newImage returns the pod whose sidecar should have the new image.
func newImage(ctx context.Context, ns string, s sidecar) (*corev1.Pod, error) {
	found, err := pods(ctx, ns, "")
	for i := range found {
		if found[i].Spec.InitContainers[0].Image == s.image {
			return &found[i], err
		}
	}
	return nil, errors.Join(err, errors.New("no pod has it"))
}

// testRolloutNoRoom needs more memory than other pods leave on the node. The rollout stops, and continues when there is
// room.
func testRolloutNoRoom(t *testing.T, ns string) {
	node, err := env.Client.CoreV1().Nodes().Get(testContext(t), Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	half := resource.NewQuantity(node.Status.Allocatable.Memory().Value()*6/10>>20<<20, resource.BinarySI).String()
	s := sidecar{name: "no-room", image: StandIn, memory: "16Mi"}
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", 1, s.name, ""))
	r := running(t, ns, 1)
	other := namespace(t, nil)
	apply(t, other, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: large}, spec: {terminationGracePeriodSeconds: 1,
    containers: [{name: app, image: %q, resources: {requests: {memory: %s}, limits: {memory: %[2]s}}}]}}`, StandIn, half))
	readyPods(t, other, "", 1)
	s.image, s.memory = NextStandIn, half
	s.use(t, ns, nil)
	wantStop(t, ns, []string{"it waits for the node to have room for the resize", "half done: pod web-"}, "--timeout", "15s")
	kubectl(t, "-n", other, "delete", "pod", "large")
	mustRollout(t, ns)
	r.wantAll(t, s)
}

// testRolloutAgain changes an image again and again, so that the kubelet waits before it starts the sidecar. The rollout
// waits too.
func testRolloutAgain(t *testing.T, ns string) {
	s := sidecar{name: "again", image: StandIn, memory: "16Mi"}
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", 1, s.name, ""))
	r := running(t, ns, 1)
	const changes = 5
	for i := range changes {
		s.image = [...]string{NextStandIn, StandIn}[i%2]
		s.use(t, ns, nil)
		mustRollout(t, ns)
	}
	r.wantAll(t, s)
	if n := statusIn(&podsIn(t, ns)[0], s.name).RestartCount; n != changes {
		t.Errorf("the sidecar was started again %d times, want %d", n, changes)
	}
	if waits := backOffs(t, ns); waits == 0 {
		t.Error("the kubelet has not waited")
	}
}

// backOffs counts the events with which the kubelet reports that it waits before it starts a container again.
func backOffs(t *testing.T, ns string) (n int) {
	t.Helper()
	events, err := env.Client.CoreV1().Events(ns).List(testContext(t), metav1.ListOptions{FieldSelector: "reason=BackOff"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		if strings.HasPrefix(events.Items[i].Message, "Back-off restarting failed container") {
			n++
		}
	}
	return n
}

// testRolloutCrash uses an image whose program crashes. The rollout stops after one pod, and the old template repairs
// that.
func testRolloutCrash(t *testing.T, ns string) {
	s := sidecar{name: "crash", image: StandIn, memory: "16Mi"}
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", 2, s.name, ""))
	r := running(t, ns, 2)
	good := s.image
	s.image = CrashingStandIn
	s.use(t, ns, nil)
	wantStop(t, ns, []string{"rollout has stopped after 0 of 2 pods", "Back-off restarting failed container", "half done: pod web-"}, "--max-unavailable", "1", "--min-ready", "10s", "--timeout", "100s")
	s.image = good
	s.use(t, ns, nil)
	mustRollout(t, ns)
	r.wantAll(t, s)
}
