// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// Cluster is what a rollout reads and writes.
type Cluster interface {
	Pod(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error)
	PatchPod(ctx context.Context, p Patch) error
	// ClaimPod writes the claim of a rollout into a pod, and returns the pod. If the pod has changed since it was read, it
	// returns a conflict.
	ClaimPod(ctx context.Context, pod *corev1.Pod, claim rollout.Claim) (*unstructured.Unstructured, error)
	Evict(ctx context.Context, namespace, name, uid string) error
	// EachPod passes the pods that a list selects to each, one by one, and returns the resourceVersion of the list. So the caller
	// decides what it holds of each pod.
	EachPod(ctx context.Context, namespace string, of metav1.ListOptions, each func(*corev1.Pod) error) (version string, err error)
	// InspectWorkload passes the present pods of a workload to each, one by one. Before is what was seen a moment ago, or nil; with it,
	// only the pods are read, and not the workload itself.
	InspectWorkload(ctx context.Context, w *rollout.Workload, before *Sight, each func(*corev1.Pod)) (*Sight, error)
	// Watch returns a channel that receives when pods of a workload have changed after it was seen, until the context ends. It
	// is a hint to inspect the pods again, and may receive too often or, if it is nil or the connection breaks, never.
	Watch(ctx context.Context, w *rollout.Workload, seen *Sight) <-chan struct{}
	// Workload reads the object of a workload.
	Workload(ctx context.Context, w *rollout.Workload) (*unstructured.Unstructured, error)
	// Restart replaces all pods of a workload, as kubectl rollout restart does, and returns when that began, by the clock of the API
	// server.
	Restart(ctx context.Context, w *rollout.Workload) (time.Time, error)
	// Budgets lists the PodDisruptionBudgets of a namespace.
	Budgets(ctx context.Context, namespace string) ([]Budget, error)
	// Failure returns why a container of a pod has not started since a time, by the pod's events, or "".
	Failure(ctx context.Context, pod *corev1.Pod, container string, since time.Time) string
	// Symptom returns the last message about the probes of a container, by the pod's events, or "". The name of the
	// container is "" for any.
	Symptom(ctx context.Context, pod *corev1.Pod, container string) string
}

// Sight is what a rollout sees of a workload, besides its pods.
type Sight struct {
	Desired int // the number of pods that it should have, or -1 if that is unknown

	of      metav1.ListOptions // selects the pods, and perhaps pods of other workloads
	version string             // the resourceVersion of the list
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Name     string
	Selector labels.Selector
	Allowed  int // the number of disruptions that it allows now
	Pods     int // the number of pods that it counts
}

// Patch is a JSON Patch of a pod or of a subresource of it.
type Patch struct {
	Namespace, Name, Subresource string
	Operations                   []byte
	DryRun                       bool
}

// Kubernetes is a [Cluster] behind the Kubernetes API.
type Kubernetes struct {
	dynamic.Interface

	// ListPods passes the pods that a list selects to each, one by one, as JSON that changes after the call. An error of each ends it.
	ListPods func(ctx context.Context, namespace string, of metav1.ListOptions, each func(text []byte) error) (metav1.ListMeta, error)
}

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// Pod implements [Cluster].
func (k Kubernetes) Pod(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	return k.Resource(podResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// PatchPod implements [Cluster].
func (k Kubernetes) PatchPod(ctx context.Context, p Patch) error {
	options := metav1.PatchOptions{FieldManager: rollout.Manager}
	if p.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var of []string
	if p.Subresource != "" {
		of = append(of, p.Subresource)
	}
	_, err := k.Resource(podResource).Namespace(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, p.Operations, options, of...)
	return err
}

// ClaimPod implements [Cluster].
func (k Kubernetes) ClaimPod(ctx context.Context, pod *corev1.Pod, claim rollout.Claim) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]any{rollout.AnnotationUnproved: claim.String()},
	}})
	if err != nil {
		return nil, err
	}
	return k.Resource(podResource).Namespace(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: rollout.Manager})
}

// Evict implements [Cluster].
func (k Kubernetes) Evict(ctx context.Context, namespace, name, uid string) error {
	eviction := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata":      map[string]any{"name": name, "namespace": namespace},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": uid}},
	}}
	_, err := k.Resource(podResource).Namespace(namespace).Create(ctx, eviction, metav1.CreateOptions{}, "eviction")
	return err
}

// EachPod implements [Cluster].
func (k Kubernetes) EachPod(ctx context.Context, namespace string, of metav1.ListOptions, each func(*corev1.Pod) error) (version string, err error) {
	list, err := k.ListPods(ctx, namespace, of, func(text []byte) error {
		pod := &corev1.Pod{}
		if err := json.Unmarshal(text, pod); err != nil {
			return fmt.Errorf("a pod cannot be read: %w", err)
		}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod")) // the API server leaves it out in a list
		return each(pod)
	})
	return list.ResourceVersion, err
}

func (k Kubernetes) workloadClient(w *rollout.Workload) dynamic.ResourceInterface {
	group, _ := schema.ParseGroupVersion(w.APIVersion)
	return k.Resource(group.WithResource(strings.ToLower(w.Kind) + "s")).Namespace(w.Namespace)
}

// Workload implements [Cluster].
func (k Kubernetes) Workload(ctx context.Context, w *rollout.Workload) (*unstructured.Unstructured, error) {
	return k.workloadClient(w).Get(ctx, w.Name, metav1.GetOptions{})
}

// restartedAt is the annotation of a pod template that kubectl rollout restart changes.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// Restart implements [Cluster].
func (k Kubernetes) Restart(ctx context.Context, w *rollout.Workload) (time.Time, error) {
	now := time.Now()
	annotations := map[string]any{"annotations": map[string]any{restartedAt: now.UTC().Format(time.RFC3339)}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": annotations}}})
	if err != nil {
		return time.Time{}, err
	}
	object, err := k.workloadClient(w).Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: rollout.Manager})
	if err != nil {
		return time.Time{}, err
	}
	if at := rollout.Restarted(&metav1.ObjectMeta{CreationTimestamp: object.GetCreationTimestamp(), ManagedFields: object.GetManagedFields()}); !at.IsZero() {
		return at, nil
	}
	return now, nil
}

// Budgets implements [Cluster].
func (k Kubernetes) Budgets(ctx context.Context, namespace string) (all []Budget, err error) {
	budgets := schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	list, err := k.Resource(budgets).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		var b struct {
			Metadata struct{ Generation int64 }
			Spec     struct{ Selector *metav1.LabelSelector }
			Status   struct {
				DisruptionsAllowed int
				ExpectedPods       int
				ObservedGeneration int64
			}
		}
		if err := decodeObject(&list.Items[i], &b); err != nil {
			return nil, err
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return nil, err
		}
		if b.Status.ObservedGeneration < b.Metadata.Generation {
			b.Status.DisruptionsAllowed = 0 // as the eviction API does
		}
		all = append(all, Budget{list.Items[i].GetName(), selector, b.Status.DisruptionsAllowed, b.Status.ExpectedPods})
	}
	return all, nil
}

// Failure implements [Cluster]. The status of a sidecar whose image cannot be pulled has no reason, but events about it have one.
// Kubernetes stores times in seconds, so an event in the second of the change may be about the container before the change, and does
// not count. The kubelet repeats an event about the changed container. If the user may not read events, Failure returns "", and the
// rollout waits until its deadline.
func (k Kubernetes) Failure(ctx context.Context, pod *corev1.Pod, container string, since time.Time) string {
	why, best := "", len(startFailures())
	for _, e := range k.warningEvents(ctx, pod) {
		if !strings.HasSuffix(e.InvolvedObject.FieldPath, "{"+container+"}") {
			continue
		}
		if e.Reason == "BackOff" && !endedSince(pod, container, since) || ofOtherImage(pod, container, e.Message) {
			continue
		}
		if rank := slices.Index(startFailures(), e.Reason); rank >= 0 && rank < best && lastOf(e).After(since) {
			why, best = e.Reason+": "+e.Message, rank
		}
	}
	return why
}

// lastOf returns when an event was last observed.
func lastOf(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case e.LastTimestamp.IsZero():
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}

// ofOtherImage reports whether the message of an event is about an image that a container had before.
func ofOtherImage(pod *corev1.Pod, container, message string) bool {
	_, rest, named := strings.Cut(message, `image "`)
	image, _, quoted := strings.Cut(rest, `"`)
	return named && quoted && slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return c.Name == container && !rollout.SameImage(c.Image, image)
	})
}

// endedSince reports whether a container has started after a time and has ended again. Only then is an event BackOff a failure: a
// container that has not started waits, too, after several changes of its image within minutes. If its image cannot be pulled,
// the event Failed has the reason.
func endedSince(pod *corev1.Pod, container string, since time.Time) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.Name == container && s.State.Terminated != nil && s.State.Terminated.StartedAt.After(since)
	})
}

// startFailures returns the reasons of the kubelet's events about containers that do not start. The reason that explains most is the
// first.
func startFailures() []string {
	return []string{"ErrImageNeverPull", "InspectFailed", "Failed", "BackOff"}
}

// Symptom implements [Cluster].
func (k Kubernetes) Symptom(ctx context.Context, pod *corev1.Pod, container string) string {
	var last *corev1.Event
	for _, e := range k.warningEvents(ctx, pod) {
		if e.Reason == "Unhealthy" && strings.HasSuffix(e.InvolvedObject.FieldPath, "{"+container+"}") && (last == nil || lastOf(e).After(lastOf(last))) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return strings.TrimSpace(last.Message)
}

// warningEvents returns the events of type Warning about a pod, or none if the user may not read events.
func (k Kubernetes) warningEvents(ctx context.Context, pod *corev1.Pod) (all []*corev1.Event) {
	const most = 50 // a pod has fewer, unless users forge some
	options := metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID) + ",type=" + corev1.EventTypeWarning, Limit: most}
	list, err := k.Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace(pod.Namespace).List(ctx, options)
	if err != nil {
		return nil
	}
	for i := range list.Items {
		e := &corev1.Event{}
		if decodeObject(&list.Items[i], e) == nil {
			all = append(all, e)
		}
	}
	return all
}

func decodeObject(from *unstructured.Unstructured, to any) error {
	text, err := from.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

func asPod(object *unstructured.Unstructured) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod)
}
