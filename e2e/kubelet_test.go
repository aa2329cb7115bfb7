// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// kubelet writes the status of pods as a kubelet does after a change of their containers, without running
// them. Containers with an image that contains "bad" never start, those with one that contains "once" start only in the first
// pod, and no node has 1Ti of memory.
type kubelet struct {
	client kubernetes.Interface

	mu      sync.Mutex
	unready map[string]int    // how often a pod is still reported as not ready
	delay   int               // what unready begins with after a change
	most    int               // pods that were not ready at the same time
	first   map[string]string // by image: the first pod that had it
}

func newKubelet(client kubernetes.Interface) *kubelet {
	return &kubelet{client: client, unready: map[string]int{}, first: map[string]string{}}
}

// startKubelet runs until the end of the test.
func startKubelet(t *testing.T, client kubernetes.Interface) *kubelet {
	t.Helper()
	k := newKubelet(client)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			k.sync(ctx)
			return false, nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

// takeTime sets for how many reports a changed pod is not ready, at most.
func (k *kubelet) takeTime(reports int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay = reports
	for pod, left := range k.unready {
		k.unready[pod] = min(left, max(1, reports))
	}
}

func (k *kubelet) sync(ctx context.Context) {
	pods, err := k.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	unready := map[string]int{} // by namespace, because each workload has its own limits
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Namespace == pillionNamespace || pod.Namespace == metav1.NamespaceSystem {
			continue
		}
		if pod.DeletionTimestamp != nil {
			_ = k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			continue
		}
		if k.report(pod) {
			_, _ = k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		}
		if strings.HasPrefix(pod.Namespace, "budget") && pod.Status.Conditions[0].Status != corev1.ConditionTrue {
			unready[pod.Namespace]++
			k.most = max(k.most, unready[pod.Namespace])
		}
	}
}

// report changes the status, and reports whether it was another one.
func (k *kubelet) report(pod *corev1.Pod) bool {
	id := pod.Namespace + "/" + pod.Name
	changed := pod.Status.ObservedGeneration != pod.Generation
	if changed && pod.Status.ObservedGeneration > 0 {
		k.unready[id] = k.delay
	}
	if !changed && k.unready[id] == 0 {
		return false
	}
	k.unready[id] = max(0, k.unready[id]-1)
	ready := k.unready[id] == 0
	old := map[string]corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			old[s.Name] = s
		}
	}
	started := pod.Status.StartTime
	if started == nil {
		started = new(metav1.Now())
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ObservedGeneration: pod.Generation, StartTime: started}
	tooBig := false
	all := func(containers []corev1.Container) (statuses []corev1.ContainerStatus) {
		for _, c := range containers {
			if k.first[c.Image] == "" {
				k.first[c.Image] = id
			}
			s := reportContainer(c, old, strings.Contains(c.Image, "bad") || strings.Contains(c.Image, "once") && k.first[c.Image] != id)
			ready = ready && s.Ready
			tooBig = tooBig || c.Resources.Limits.Memory().String() == "1Ti"
			statuses = append(statuses, s)
		}
		return statuses
	}
	pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = all(pod.Spec.InitContainers), all(pod.Spec.Containers)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}, {Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
	if tooBig {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "the node has 8Gi"})
	}
	return true
}

// reportContainer reports a container. One whose image has changed has been restarted.
func reportContainer(c corev1.Container, old map[string]corev1.ContainerStatus, fails bool) corev1.ContainerStatus {
	s, known := old[c.Name]
	if s.Name = c.Name; known && s.Image != c.Image {
		s.RestartCount++
	}
	if s.Image != c.Image {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	}
	resources := c.Resources
	s.Image, s.ImageID, s.Ready, s.Started, s.Resources = c.Image, "sha256:"+c.Image, true, new(true), &resources
	if fails {
		s.Ready, s.Started = false, new(false)
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image \"" + c.Image + "\""}}
	}
	return s
}

// restarted returns the restarts of a container in all pods.
func restarted(pods []corev1.Pod, container string) (n int) {
	for i := range pods {
		for _, s := range slices.Concat(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses) {
			if s.Name == container {
				n += int(s.RestartCount)
			}
		}
	}
	return n
}
