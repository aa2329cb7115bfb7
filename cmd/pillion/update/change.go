// SPDX-License-Identifier: Apache-2.0

package update

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// attempts is how often a pod is planned again because somebody else has changed it.
const attempts = 5

// errAgain means that the pod has changed since it was planned.
var errAgain = errors.New("the pod keeps changing")

// change updates one pod in place.
func (r *Rollout) change(ctx context.Context, w *rollout.Workload, p *rollout.Pod) error {
	var err error
	for range attempts {
		err = r.changeOnce(ctx, w, p)
		if !errors.Is(err, errAgain) {
			break
		}
	}
	if apierrors.IsNotFound(err) {
		r.say(Event{Type: "skipped", Namespace: p.Namespace, Workload: w.Title(), Pod: p.Name, Message: "it no longer exists"})
		return nil
	}
	return err
}

// changeOnce plans a pod in its present state, and changes it: images, resources, and, if it is well, the
// record.
func (r *Rollout) changeOnce(ctx context.Context, w *rollout.Workload, p *rollout.Pod) error {
	object, err := r.Cluster.Pod(ctx, p.Namespace, p.Name)
	if err != nil {
		return err
	}
	event := Event{Type: "skipped", Namespace: p.Namespace, Workload: w.Title(), Pod: p.Name}
	if string(object.GetUID()) != p.UID {
		event.Message = "it is another pod now"
		r.say(event)
		return nil
	}
	now, before, err := r.plan(object)
	if err != nil {
		return err
	}
	if now.Action != rollout.Patch {
		if event.Message = now.Why; now.Action == rollout.None {
			event.Message = "it is current already"
		}
		r.say(event)
		return nil
	}
	if now.Restarts() && now.Ready {
		release, err := r.admit(ctx, p, object.GetLabels())
		if err != nil {
			return err
		}
		defer release()
	}
	if err := r.apply(ctx, now, before); err != nil {
		return err
	}
	event.Type, event.Way, event.Changes, event.Message = "pod", rollout.ChangeInPlace, now.Changes, now.Summary()
	r.say(event)
	return nil
}

// plan plans a pod, with the owner that is known.
func (r *Rollout) plan(object *unstructured.Unstructured) (*rollout.Pod, *corev1.Pod, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, nil, err
	}
	now, err := r.Plan(object.GetNamespace(), text)
	if err != nil {
		return nil, nil, err
	}
	pod, err := asPod(object)
	return now, pod, err
}

// apply makes the requests of a change, and waits until the pod is well before the last one.
func (r *Rollout) apply(ctx context.Context, p *rollout.Pod, before *corev1.Pod) error {
	images, err := p.Images()
	if err != nil {
		return err
	}
	resources, err := p.Resources()
	if err != nil {
		return err
	}
	if resources != nil { // nothing is changed if the resize would be denied
		if err := r.Cluster.PatchPod(ctx, Patch{p.Namespace, p.Name, resizeSubresource, resources, true}); err != nil {
			return rejected("resize", err)
		}
	}
	var did []string
	for _, step := range []struct {
		what, subresource string
		patch             []byte
	}{{"image", "", images}, {"resources", resizeSubresource, resources}} {
		if step.patch == nil {
			continue
		}
		if err := r.Cluster.PatchPod(ctx, Patch{p.Namespace, p.Name, step.subresource, step.patch, false}); err != nil {
			if len(did) > 0 && !changedMeanwhile(err) {
				r.halfDone(p, did)
			}
			return rejected("change of its "+step.what, err)
		}
		did = append(did, step.what)
	}
	if len(did) == 0 {
		before = nil
	}
	if err := r.await(ctx, p, before); err != nil {
		r.halfDone(p, did)
		return err
	}
	record, err := p.Record()
	if err != nil || record == nil {
		return err
	}
	if err := r.Cluster.PatchPod(ctx, Patch{p.Namespace, p.Name, "", record, false}); err != nil {
		if !changedMeanwhile(err) {
			r.halfDone(p, did)
		}
		return rejected("change of its record", err)
	}
	return nil
}

const resizeSubresource = "resize"

func (r *Rollout) halfDone(p *rollout.Pod, did []string) {
	if len(did) == 0 {
		did = []string{"its containers"}
	}
	r.leaves(fmt.Sprintf("pod %s in the namespace %s (%s changed, not yet recorded)", p.Name, p.Namespace, strings.Join(did, " and ")))
}

// changedMeanwhile reports whether a patch failed because the pod is not as it was planned for. The API server
// gives no cause if a test of a JSON Patch fails. If it denies the result, it does.
func changedMeanwhile(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return apierrors.IsConflict(err) || ok && apierrors.IsInvalid(err) && (status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0)
}

// rejected explains the error of a request.
func rejected(what string, err error) error {
	switch {
	case changedMeanwhile(err):
		return errAgain
	case apierrors.IsNotFound(err):
		return err
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("the API server denied the %s: %w", what, err)
	}
	return err
}

// await waits until a pod is well for a while. A pod that is replaced meanwhile needs no wait.
func (r *Rollout) await(ctx context.Context, p *rollout.Pod, before *corev1.Pod) error {
	deadline, waits := time.Now().Add(r.Limits.Timeout), "an answer of the API server"
	var well time.Time // since when
	tell := r.waiting(Event{Namespace: p.Namespace, Pod: p.Name})
	for {
		object, err := r.Cluster.Pod(ctx, p.Namespace, p.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && string(object.GetUID()) != p.UID:
			return apierrors.NewNotFound(podResource.GroupResource(), p.Name)
		case err == nil:
			pod, err := asPod(object)
			if err != nil {
				return err
			}
			h := rollout.Check(pod, before, p.Own, p.Ready)
			switch {
			case h.Failed != "":
				return errors.New(h.Failed)
			case h.Ended != "":
				if why := r.Cluster.Failure(ctx, pod, h.Ended, rollout.Changed(&pod.ObjectMeta)); why != "" {
					return fmt.Errorf("the container %s does not start: %s", h.Ended, why)
				}
				well, waits = time.Time{}, h.Waits
			case !h.Done:
				well, waits = time.Time{}, h.Waits
			case well.IsZero():
				well = time.Now()
			}
			if h.Done && time.Since(well) >= r.Limits.MinReady {
				return nil
			}
			if h.Done {
				waits = fmt.Sprintf("it to be ready for %s", r.Limits.MinReady)
			}
		case denied(err):
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it is not done after %s: it waits for %s", r.Limits.Timeout, waits)
		}
		tell(waits)
		if err := r.sleep(ctx); err != nil {
			return err
		}
	}
}

// denied reports whether trying again is pointless.
func denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// admit waits until the PodDisruptionBudgets allow that a pod becomes unready. The controller of the
// budgets counts such a pod a moment later, so those that this rollout disrupts are counted twice.
func (r *Rollout) admit(ctx context.Context, p *rollout.Pod, podLabels map[string]string) (release func(), err error) {
	deadline, blocked := time.Now().Add(r.Limits.Timeout), ""
	tell := r.waiting(Event{Namespace: p.Namespace, Pod: p.Name})
	for {
		budgets, err := r.Cluster.Budgets(ctx, p.Namespace)
		if err != nil {
			return nil, err
		}
		budgets = slices.DeleteFunc(budgets, func(b Budget) bool { return !b.Selector.Matches(labels.Set(podLabels)) })
		if release, blocked = r.take(p.Namespace, budgets); release != nil {
			return release, nil
		}
		if r.stopping() {
			return nil, ErrStopped
		}
		tell("the PodDisruptionBudget " + blocked + " to allow a disruption")
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the PodDisruptionBudget %s has allowed no disruption for %s", blocked, r.Limits.Timeout)
		}
		if err := r.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// take counts a disruption if all budgets allow it. Otherwise it returns the name of one that does not.
func (r *Rollout) take(namespace string, budgets []Budget) (release func(), blocked string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range budgets {
		if b.Allowed <= r.flight[namespace+"/"+b.Name] {
			return nil, b.Name
		}
	}
	for _, b := range budgets {
		r.flight[namespace+"/"+b.Name]++
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, b := range budgets {
			r.flight[namespace+"/"+b.Name]--
		}
	}, ""
}
