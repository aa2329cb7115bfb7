// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// attempts is how often a pod is planned again because somebody else has changed it.
const attempts = 5

// errAgain means that the pod has changed since it was planned.
var errAgain = errors.New("the pod keeps changing")

// changePod changes one pod in place.
func (s *run) changePod(ctx context.Context, p *rollout.Pod) error {
	var err error
	for range attempts {
		err = s.changeOnce(ctx, p)
		if !errors.Is(err, errAgain) {
			break
		}
	}
	if apierrors.IsNotFound(err) {
		return nil // the next look reports it
	}
	return err
}

// changeOnce plans a pod in its present state, and changes its images and resources. Its record follows when it is proved.
func (s *run) changeOnce(ctx context.Context, p *rollout.Pod) error {
	object, err := s.Cluster.Pod(ctx, p.Namespace, p.Name)
	if err != nil {
		return err
	}
	if string(object.GetUID()) != p.UID || object.GetDeletionTimestamp() != nil {
		return nil // the next look reports it
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
		return nil
	}
	did, err := s.patchContainers(ctx, now)
	now.Forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(did) > 0 || err == nil {
		s.did[p.UID] = strings.Join(did, " and ")
		s.watch.Begin(now, before, time.Now())
	}
	return err
}

// leaveOut notes that a pod gets no change.
func (s *run) leaveOut(uid string) {
	s.mu.Lock()
	s.watch.Leave(uid)
	s.mu.Unlock()
	s.releaseBudgets(uid)
}

// planPod plans a pod, with the owner that is known.
func (r *Rollout) planPod(object *unstructured.Unstructured) (*rollout.Pod, *corev1.Pod, error) {
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

// patchContainers changes images and resources. It returns what it has changed, also if there is an error.
func (r *Rollout) patchContainers(ctx context.Context, p *rollout.Pod) (did []string, err error) {
	images, err := p.Images()
	if err != nil {
		return nil, err
	}
	resources, err := p.Resources()
	if err != nil {
		return nil, err
	}
	if resources != nil { // nothing is changed if the resize would be denied
		if err := r.Cluster.PatchPod(ctx, Patch{p.Namespace, p.Name, resizeSubresource, resources, true}); err != nil {
			return nil, explainPatchError("resize", err)
		}
	}
	for _, step := range []struct {
		what, subresource string
		patch             []byte
	}{{"image", "", images}, {"resources", resizeSubresource, resources}} {
		if step.patch == nil {
			continue
		}
		if err := r.Cluster.PatchPod(ctx, Patch{p.Namespace, p.Name, step.subresource, step.patch, false}); err != nil {
			return did, explainPatchError("change of its "+step.what, err)
		}
		did = append(did, step.what)
	}
	return did, nil
}

const resizeSubresource = "resize"

// changedMeanwhile reports whether a patch failed because the pod is not as it was planned for. The API server
// gives no cause if a test of a JSON Patch fails. If it denies the result, it does.
func changedMeanwhile(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return apierrors.IsConflict(err) || ok && apierrors.IsInvalid(err) && (status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0)
}

// explainPatchError explains the error of a request.
func explainPatchError(what string, err error) error {
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

// isAccessDenied reports whether trying again is pointless.
func isAccessDenied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// recordChanges records the changes of pods that are proved.
func (s *run) recordChanges(ctx context.Context, uids []string) error {
	for _, uid := range uids {
		p, pod := s.watch.Plan(uid), s.watch.Last(uid)
		if p == nil || pod == nil || !s.watch.Ours(uid) {
			continue
		}
		err := s.recordProved(ctx, p, pod)
		if s.releaseBudgets(p.UID); err != nil {
			return err
		}
	}
	return nil
}

// recordProved records the change of a pod. P is its plan, or that of the pod that it replaces.
func (s *run) recordProved(ctx context.Context, p *rollout.Pod, pod *corev1.Pod) error {
	event := Event{Type: "pod", Namespace: s.w.Namespace, Workload: s.w.Title(), Pod: p.Name, Way: s.w.Way, Changes: p.Changes, Message: p.Summary()}
	switch {
	case s.proving:
		return nil // the restart reports all pods
	case s.w.Way == rollout.Evict:
		event.Changes, event.Message = nil, p.Why
	default:
		err := s.recordOne(ctx, pod.Namespace, pod.Name, string(pod.UID))
		if apierrors.IsNotFound(err) {
			return nil // the next look reports it
		}
		if err != nil {
			s.noteIncomplete(fmt.Sprintf("pod %s in the namespace %s (%s changed, not yet recorded)", pod.Name, pod.Namespace, s.did[string(pod.UID)]))
			return aboutPod(pod.Namespace, pod.Name, err)
		}
	}
	s.reportEvent(event)
	return nil
}

// recordOne writes the revision into a pod, if nothing else is left to do.
func (s *run) recordOne(ctx context.Context, namespace, name, uid string) (err error) {
	for range attempts {
		if err = s.tryRecord(ctx, namespace, name, uid); !errors.Is(err, errAgain) {
			return err
		}
	}
	return err
}

func (s *run) tryRecord(ctx context.Context, namespace, name, uid string) error {
	object, err := s.Cluster.Pod(ctx, namespace, name)
	if err != nil {
		return err
	}
	if string(object.GetUID()) != uid {
		return apierrors.NewNotFound(podResource.GroupResource(), name)
	}
	now, _, err := s.planPod(object)
	if err != nil || !now.Unrecorded() {
		return err
	}
	record, err := now.Record()
	if err != nil || record == nil {
		return err
	}
	if err := s.Cluster.PatchPod(ctx, Patch{namespace, name, "", record, false}); err != nil {
		return explainPatchError("change of its record", err)
	}
	return nil
}
