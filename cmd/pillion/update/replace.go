// SPDX-License-Identifier: Apache-2.0

package update

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// restart replaces all pods of a workload, as kubectl rollout restart does.
func (r *Rollout) restart(ctx context.Context, w *rollout.Workload) error {
	at, err := r.Cluster.Restart(ctx, w)
	if err != nil {
		return fmt.Errorf("%s in the namespace %s cannot be restarted: %w", w.Title(), w.Namespace, err)
	}
	return r.follow(ctx, w, at)
}

// follow waits until a workload has replaced its pods. The deadline starts again with each pod. Since is when the new
// pods begin, by the clock of the API server. If the rollout has to stop, the next one awaits the workload.
func (r *Rollout) follow(ctx context.Context, w *rollout.Workload, since time.Time) error {
	deadline, updated, waits := time.Now().Add(r.Limits.Timeout), 0, "an answer of the API server"
	tell := r.waiting(Event{Namespace: w.Namespace, Workload: w.Title()})
	for {
		object, err := r.Cluster.Workload(ctx, w)
		if apierrors.IsNotFound(err) {
			r.say(Event{Type: "skipped", Namespace: w.Namespace, Workload: w.Title(), Pods: len(w.Todo()), Message: "it no longer exists"})
			return nil
		}
		if err != nil && denied(err) {
			return err
		}
		if err == nil {
			p, err := r.progress(ctx, w, object, since)
			switch {
			case err != nil:
				return err
			case p.Failed != "":
				r.leaves(fmt.Sprintf("%s in the namespace %s (restarted, its new pods do not start)", w.Title(), w.Namespace))
				return &podError{p.pod, fmt.Errorf("%s in the namespace %s: %s", w.Title(), w.Namespace, p.Failed)}
			case p.Done:
				if err := r.verify(ctx, w, object, since); err != nil {
					return err
				}
				r.say(Event{Type: "workload", Namespace: w.Namespace, Workload: w.Title(), Way: w.Way, Pods: len(w.Todo()), Message: w.Why})
				return nil
			case p.Updated > updated:
				updated, deadline = p.Updated, time.Now().Add(r.Limits.Timeout)
			}
			waits = p.Waits
			if time.Now().After(deadline) {
				return r.late(ctx, w, object, waits)
			}
		}
		if time.Now().After(deadline) {
			return r.late(ctx, w, nil, waits)
		}
		tell(waits)
		err = r.sleep(ctx)
		if r.toldToStop() {
			err = ErrStopped
		}
		if err != nil {
			r.leaves(fmt.Sprintf("%s in the namespace %s (restarted, not complete)", w.Title(), w.Namespace))
			return err
		}
	}
}

// late returns the error about a workload that does not progress, with one of its pods that are not ready.
func (r *Rollout) late(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, waits string) error {
	r.leaves(fmt.Sprintf("%s in the namespace %s (restarted, not complete)", w.Title(), w.Namespace))
	failed := &podError{err: fmt.Errorf("%s in the namespace %s has not progressed for %s: it waits for %s", w.Title(), w.Namespace, r.Limits.Timeout, waits)}
	if object == nil {
		return failed
	}
	pods, err := r.newPods(ctx, w, object, time.Time{})
	if err != nil {
		return failed
	}
	for _, pod := range pods {
		if rollout.IsReady(pod) {
			continue
		}
		if failed.name = pod.Name; w.Kind == "StatefulSet" {
			failed.err = fmt.Errorf("%w; its pod %s is not ready, and a StatefulSet does not replace such a pod, so delete it", failed.err, pod.Name)
		}
		return failed
	}
	return failed
}

// progress is how far a workload is, and which of its new pods fails.
type progress struct {
	rollout.Progress

	pod string
}

// progress reads how far a workload is, and whether one of its new pods does not start.
func (r *Rollout) progress(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, since time.Time) (p progress, err error) {
	object.SetKind(w.Kind)
	text, err := object.MarshalJSON()
	if err != nil {
		return p, err
	}
	if p.Progress, err = rollout.ProgressOf(text); err != nil || p.Done || p.Failed != "" {
		return p, err
	}
	if since.IsZero() { // others have restarted it
		return p, nil
	}
	pods, err := r.newPods(ctx, w, object, since)
	for _, pod := range pods {
		if why := rollout.Stuck(pod); why != "" {
			p.Failed, p.pod = fmt.Sprintf("its new pod %s: %s", pod.Name, why), pod.Name
		}
		if why := rollout.Unscheduled(pod); why != "" {
			p.Waits = fmt.Sprintf("a node for its new pod %s: %s", pod.Name, why)
		}
	}
	return p, err
}

// verify checks that a restarted workload has replaced its pods, and that the new ones are current. They are not if a
// replica of Pillion did not know the template yet. Otherwise the workload would be restarted again and again.
func (r *Rollout) verify(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, since time.Time) error {
	if since.IsZero() {
		return nil
	}
	pods, err := r.newPods(ctx, w, object, since)
	if err != nil {
		return err
	}
	old, err := r.notCurrent(w, pods)
	if err != nil {
		return err
	}
	if old != nil {
		return &podError{old.Name, fmt.Errorf("%s in the namespace %s was restarted, but its new pod %s is %s; maybe not all replicas of Pillion use the templates yet", w.Title(), w.Namespace, old.Name, old.State)}
	}
	selector, err := selectorOf(object)
	if err != nil {
		return err
	}
	for _, p := range w.Todo() {
		if !selector.Matches(labels.Set(p.Labels)) {
			return &podError{p.Name, fmt.Errorf("%s in the namespace %s was restarted, but not its pod %s, whose labels it does not select", w.Title(), w.Namespace, p.Name)}
		}
	}
	return nil
}

func selectorOf(workload *unstructured.Unstructured) (labels.Selector, error) {
	selector := &metav1.LabelSelector{}
	spec, _, _ := unstructured.NestedMap(workload.Object, "spec", "selector")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, selector); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(selector)
}

// notCurrent returns one of the pods that would have to change again, or nil.
func (r *Rollout) notCurrent(w *rollout.Workload, pods []*corev1.Pod) (*rollout.Pod, error) {
	for _, pod := range pods {
		text, err := json.Marshal(pod)
		if err != nil {
			return nil, err
		}
		now, err := r.Plan(w.Namespace, text)
		if err != nil || now.Action == rollout.Patch || now.Action == rollout.Replace {
			return now, err
		}
	}
	return nil, nil
}

// newPods returns the pods of a workload that were created since its restart.
func (r *Rollout) newPods(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, since time.Time) (all []*corev1.Pod, err error) {
	selector, err := selectorOf(object)
	if err != nil {
		return nil, err
	}
	pods, err := r.Cluster.Pods(ctx, w.Namespace, selector.String())
	if err != nil {
		return nil, err
	}
	for i := range pods {
		pod, err := asPod(&pods[i])
		if err != nil {
			return nil, err
		}
		if !pod.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
			all = append(all, pod)
		}
	}
	return all, nil
}

// evict deletes a pod if its PodDisruptionBudgets allow it, and waits for the new one.
func (r *Rollout) evict(ctx context.Context, w *rollout.Workload, p *rollout.Pod) error {
	object, err := r.Cluster.Pod(ctx, p.Namespace, p.Name)
	if err == nil && string(object.GetUID()) == p.UID {
		err = r.evictOne(ctx, w, object)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	r.say(Event{Type: "pod", Namespace: p.Namespace, Workload: w.Title(), Pod: p.Name, Way: rollout.Evict, Message: p.Why})
	return nil
}

func (r *Rollout) evictOne(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured) error {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return errors.New("it has lost its controller")
	}
	before, err := r.owned(ctx, object, owner)
	if err != nil {
		return err
	}
	had := ready(before)
	tell := r.waiting(Event{Namespace: object.GetNamespace(), Workload: w.Title(), Pod: object.GetName()})
	deadline := time.Now().Add(r.Limits.Timeout)
	for {
		err := r.Cluster.Evict(ctx, object.GetNamespace(), object.GetName(), string(object.GetUID()))
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		if !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("it cannot be evicted: %w", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a PodDisruptionBudget has not allowed to evict it for %s", r.Limits.Timeout)
		}
		if r.stopping() {
			return ErrStopped
		}
		tell("a PodDisruptionBudget to allow its eviction")
		if err := r.sleep(ctx); err != nil {
			return err
		}
	}
	deadline = time.Now().Add(r.Limits.Timeout)
	for {
		now, err := r.owned(ctx, object, owner)
		if err != nil && denied(err) {
			return err
		}
		made := slices.DeleteFunc(slices.Clone(now), func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(before, func(old *corev1.Pod) bool { return old.UID == pod.UID })
		})
		if err == nil && ready(now) >= had {
			return r.replaced(w, object.GetName(), made)
		}
		if time.Now().After(deadline) {
			return r.notReplaced(w, object.GetName(), made)
		}
		tell("the pod that replaces it")
		if err := r.sleep(ctx); err != nil {
			return err
		}
	}
}

// notReplaced returns an error about the pod that took the place of an evicted one and is not ready. Rollouts stop until
// that pod is fixed, and the evicted one is gone.
func (r *Rollout) notReplaced(w *rollout.Workload, evicted string, made []*corev1.Pod) error {
	r.leaves(fmt.Sprintf("%s in the namespace %s (a pod was evicted, and its replacement is not ready)", w.Title(), w.Namespace))
	for _, pod := range made {
		if !rollout.IsReady(pod) {
			return aboutPod(pod.Namespace, pod.Name, fmt.Errorf("it replaces %s, which was evicted, and is not ready after %s", evicted, r.Limits.Timeout))
		}
	}
	return &podError{err: fmt.Errorf("%s in the namespace %s has not replaced the evicted pod %s after %s", w.Title(), w.Namespace, evicted, r.Limits.Timeout)}
}

// replaced checks that the pods that a controller has created are current, so that they are not evicted again.
func (r *Rollout) replaced(w *rollout.Workload, evicted string, made []*corev1.Pod) error {
	old, err := r.notCurrent(w, made)
	if err != nil || old == nil {
		return err
	}
	return aboutPod(old.Namespace, old.Name, fmt.Errorf("it replaces %s, which was evicted, and is %s; maybe not all replicas of Pillion use the templates yet", evicted, old.State))
}

// owned returns the pods of a controller, without those that are being deleted.
func (r *Rollout) owned(ctx context.Context, like *unstructured.Unstructured, owner *metav1.OwnerReference) (all []*corev1.Pod, err error) {
	pods, err := r.Cluster.Pods(ctx, like.GetNamespace(), "")
	if err != nil {
		return nil, err
	}
	for i := range pods {
		of := metav1.GetControllerOf(&pods[i])
		if of == nil || of.UID != owner.UID || pods[i].GetDeletionTimestamp() != nil {
			continue
		}
		pod, err := asPod(&pods[i])
		if err != nil {
			return nil, err
		}
		all = append(all, pod)
	}
	return all, nil
}

func ready(pods []*corev1.Pod) (n int) {
	for _, pod := range pods {
		if rollout.IsReady(pod) {
			n++
		}
	}
	return n
}
