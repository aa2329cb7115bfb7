// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	clientwatch "k8s.io/client-go/tools/watch"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// InspectWorkload implements [Cluster]. It lists the pods, because a decision needs what is true now, and a watch is only a
// hint. It reads single objects by a list, too, because that needs no other right than the plan.
func (k Kubernetes) InspectWorkload(ctx context.Context, w *rollout.Workload, before *Sight, each func(*corev1.Pod)) (*Sight, error) {
	s := &Sight{Desired: -1}
	switch {
	case w.Kind == "Pod":
		s.Desired, s.of.FieldSelector = 1, "metadata.name="+w.Name
	case before != nil:
		s.Desired, s.of = before.Desired, before.of
	case w.Builtin():
		object, err := k.findWorkload(ctx, w)
		if object == nil && err == nil { // its pods are being deleted, and no new ones are created
			s.Desired = 0
		}
		if object == nil || err != nil {
			return s, err
		}
		s.Desired, s.of.LabelSelector = desiredPods(object), selectorText(object)
	}
	version, err := k.EachPod(ctx, w.Namespace, s.of, func(pod *corev1.Pod) error {
		if belongsToWorkload(pod, w) {
			each(pod)
		}
		return nil
	})
	s.version = version
	return s, err
}

// Watch implements [Cluster]. Without the right to watch pods, or if the version of the list is too old, the channel never receives.
func (k Kubernetes) Watch(ctx context.Context, w *rollout.Workload, seen *Sight) <-chan struct{} {
	pods := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.LabelSelector, options.FieldSelector = seen.of.LabelSelector, seen.of.FieldSelector
		return k.Resource(podResource).Namespace(w.Namespace).Watch(ctx, options)
	}}
	watcher, err := clientwatch.NewRetryWatcherWithContext(ctx, seen.version, pods)
	if err != nil {
		return nil
	}
	changes := make(chan struct{}, 1)
	go func() {
		for range watcher.ResultChan() {
			select {
			case changes <- struct{}{}:
			default: // the last one was not received yet
			}
		}
	}()
	return changes
}

// findWorkload returns a workload, or nil if it no longer exists.
func (k Kubernetes) findWorkload(ctx context.Context, w *rollout.Workload) (*unstructured.Unstructured, error) {
	list, err := k.workloadClient(w).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.Name})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	object := &list.Items[0]
	object.SetKind(w.Kind) // items of a list may lack it
	return object, nil
}

// desiredPods returns the number of pods that a workload should have.
func desiredPods(workload *unstructured.Unstructured) int {
	path, missing := []string{"spec", "replicas"}, int64(1)
	if workload.GetKind() == "DaemonSet" {
		path, missing = []string{"status", "desiredNumberScheduled"}, 0
	}
	n, found, err := unstructured.NestedInt64(workload.Object, path...)
	if err != nil || !found {
		n = missing
	}
	return int(n)
}

// selectorText returns the selector of a workload's pods, or "" for all pods.
func selectorText(workload *unstructured.Unstructured) string {
	if workload.GetKind() == "ReplicationController" {
		of, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "selector")
		return labels.SelectorFromSet(of).String()
	}
	selector, err := selectorOf(workload)
	if err != nil {
		return ""
	}
	return selector.String()
}

// belongsToWorkload reports whether a listed pod belongs to a workload. A pod of a Deployment names only a ReplicaSet, but the list was
// selected by the Deployment's selector.
func belongsToWorkload(pod *corev1.Pod, w *rollout.Workload) bool {
	owner := metav1.GetControllerOf(pod)
	switch {
	case w.Kind == "Pod":
		return pod.Name == w.Name
	case owner == nil:
		return false
	case w.Kind == "Deployment":
		return owner.Kind == "ReplicaSet"
	}
	return owner.Kind == w.Kind && owner.Name == w.Name
}
