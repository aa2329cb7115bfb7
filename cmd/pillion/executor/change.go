// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// maxAttempts is how often a pod is planned again because another client has changed it meanwhile.
const maxAttempts = 5

// changePod changes one pod in place.
func (s *workloadRun) changePod(ctx context.Context, p *rollout.Pod) error {
	object := s.takeClaimed(p.UID)
	err := s.changeOnce(ctx, p, object)
	for i := 1; i < maxAttempts && errors.Is(err, errAgain); i++ {
		if object, err = s.Cluster.Pod(ctx, p.Namespace, p.Name); err == nil {
			err = s.changeOnce(ctx, p, object)
		}
	}
	if errors.Is(err, errAgain) || isDenied(err) {
		s.mu.Lock()
		unchanged := s.changedFields[p.UID] == ""
		s.mu.Unlock()
		if unchanged {
			err = errors.Join(err, s.withdrawClaim(ctx, object))
		}
	}
	if apierrors.IsNotFound(err) {
		return nil // the next inspection reports that the pod is gone
	}
	return err
}

// changeOnce plans a pod in its present state, and changes its images and resources. The pod's record of the new revision follows
// later, when the pod is proved.
func (s *workloadRun) changeOnce(ctx context.Context, p *rollout.Pod, object *unstructured.Unstructured) error {
	if string(object.GetUID()) != p.UID || object.GetDeletionTimestamp() != nil {
		return nil // the next inspection reports that the pod is gone
	}
	now, before, err := s.planPod(object)
	if err != nil {
		return err
	}
	if now.Action != rollout.Patch {
		event := Event{Type: "skipped", Namespace: p.Namespace, Workload: s.w.Title(), Pod: p.Name, Message: now.Why}
		if now.Action == rollout.None {
			event.Message = "it is current already"
		}
		s.leaveOut(p.UID)
		s.reportEvent(event)
		return s.withdrawClaim(ctx, object)
	}
	changedFields, err := s.patchContainers(ctx, now)
	now.Forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(changedFields) > 0 || err == nil {
		s.changedFields[p.UID] = strings.Join(changedFields, " and ")
		s.watch.Begin(now, rollout.Trim(before), time.Now())
	}
	return err
}

// leaveOut notes that a pod gets no change.
func (s *workloadRun) leaveOut(uid string) {
	s.mu.Lock()
	s.watch.Leave(uid)
	s.mu.Unlock()
	s.releaseBudgets(uid)
}

// patchContainers changes images and resources. It returns what it has changed, also if there is an error. A dry run first shows
// whether the API server accepts the resources. It is sent once for each different change, because the API server denies the same
// change for all pods or for none, unless a quota is used up meanwhile.
func (s *workloadRun) patchContainers(ctx context.Context, p *rollout.Pod) (changedFields []string, err error) {
	images, err := p.Images()
	if err != nil {
		return nil, err
	}
	resources, err := p.Resources()
	if err != nil {
		return nil, err
	}
	if tried := p.ResizeSummary(); resources != nil && !s.isAccepted(tried) { // nothing is changed if the resize would be denied
		if err := s.Cluster.PatchPod(ctx, Patch{p.Namespace, p.Name, resizeSubresource, resources, true}); err != nil {
			return nil, explainPatchError("resize", err)
		}
		s.mu.Lock()
		s.accepted[tried] = true
		s.mu.Unlock()
	}
	for _, step := range []struct {
		what, subresource string
		patch             []byte
	}{{"image", "", images}, {"resources", resizeSubresource, resources}} {
		if step.patch == nil {
			continue
		}
		if err := s.Cluster.PatchPod(ctx, Patch{p.Namespace, p.Name, step.subresource, step.patch, false}); err != nil {
			return changedFields, explainPatchError("change of its "+step.what, err)
		}
		changedFields = append(changedFields, step.what)
	}
	return changedFields, nil
}

// isAccepted reports whether the API server has accepted a resize of another pod of the workload.
func (s *workloadRun) isAccepted(resize string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted[resize]
}

const resizeSubresource = "resize"

// recordChanges records the changes of pods that are proved, at the same time.
func (s *workloadRun) recordChanges(ctx context.Context, uids []string) error {
	return inParallel(len(uids), func(i int) error {
		p, pod := s.watch.Plan(uids[i]), s.watch.Last(uids[i])
		if p == nil || pod == nil || !s.watch.Ours(uids[i]) {
			return nil
		}
		defer s.releaseBudgets(p.UID)
		return s.recordProved(ctx, p, pod)
	})
}

// inParallel calls a function n times at the same time. It returns the first error in the order of the calls.
func inParallel(n int, do func(i int) error) error {
	var group sync.WaitGroup
	failures := make([]error, n)
	for i := range n {
		group.Go(func() { failures[i] = do(i) })
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// recordProved records and reports the change of a pod that is proved. P is the plan of the pod, or of the evicted pod that it
// replaces.
func (s *workloadRun) recordProved(ctx context.Context, p *rollout.Pod, pod *corev1.Pod) error {
	event := Event{Type: "pod", Namespace: s.w.Namespace, Workload: s.w.Title(), Pod: p.Name, Way: s.w.Way, Changes: p.Changes, Message: p.Summary()}
	switch {
	case s.proving:
		return nil // the restart reports all pods
	case s.w.Way == rollout.Evict:
		event.Changes, event.Message = nil, p.Why
	default:
		err := s.recordOne(ctx, pod)
		if apierrors.IsNotFound(err) {
			return nil // the next inspection reports that the pod is gone
		}
		if err != nil {
			s.noteIncomplete(fmt.Sprintf("pod %s in the namespace %s (changed, not yet recorded)", pod.Name, pod.Namespace))
			return newPodError(pod.Namespace, pod.Name, err)
		}
	}
	s.reportEvent(event)
	return nil
}

// recordOne writes the record of the new revision into a pod, unless the pod must change again, and removes the claim. It tries again
// if another client has changed the pod.
func (s *workloadRun) recordOne(ctx context.Context, pod *corev1.Pod) (err error) {
	object, err := s.wholePod(ctx, pod)
	if err != nil {
		return err
	}
	for range maxAttempts {
		if err = s.tryRecord(ctx, pod, object); !errors.Is(err, errAgain) {
			return err
		}
		if object, err = s.Cluster.Pod(ctx, pod.Namespace, pod.Name); err != nil {
			return err
		}
	}
	return errAgain
}

// tryRecord is recordOne for one state of the pod. It returns errAgain if the pod has changed meanwhile.
func (s *workloadRun) tryRecord(ctx context.Context, pod *corev1.Pod, object *unstructured.Unstructured) error {
	claim := rollout.ClaimOf(object.GetAnnotations())
	if object.GetUID() != pod.UID || claim.Holder != "" && !s.watch.Claims(string(pod.UID), claim) { // another rollout changes it now
		return apierrors.NewNotFound(podResource.GroupResource(), pod.Name)
	}
	now, _, err := s.planPod(object)
	if err != nil {
		return err
	}
	if !now.Unrecorded() {
		return s.withdrawClaim(ctx, object)
	}
	record, err := now.Record()
	if err != nil || record == nil {
		return err
	}
	if err := s.Cluster.PatchPod(ctx, Patch{pod.Namespace, pod.Name, "", record, false}); err != nil {
		return explainPatchError("change of its record", err)
	}
	return nil
}
