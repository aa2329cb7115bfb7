// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// claimPod writes the claim of this rollout into a pod. If the API server has certainly not stored the claim, it forgets the claim.
func (s *workloadRun) claimPod(ctx context.Context, uid string, pod *corev1.Pod) error {
	c := claimed{claim: rollout.NewClaim(s.Template, s.holder, s.watch.Rules.Proof, time.Now()), before: pod.Annotations[rollout.AnnotationUnproved]}
	if rollout.ClaimOf(pod.Annotations).Holder == s.holder {
		c.before = "" // it is this rollout's own claim, to which nothing must go back
	}
	s.mu.Lock()
	s.claims[uid] = c
	s.mu.Unlock()
	object, err := s.Cluster.ClaimPod(ctx, pod, c.claim)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		c.object = object
		s.claims[uid] = c
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), isAccessDenied(err):
		delete(s.claims, uid)
	}
	return err
}

// takeClaimed returns a pod that this rollout has claimed and changes now, so that withdrawClaims will not withdraw its claim. It
// returns nil if the pod with the claim is not known.
func (s *workloadRun) takeClaimed(uid string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.claims[uid].object
	delete(s.claims, uid)
	return object
}

// dropClaim withdraws the claim in a pod that will not be changed. If that fails, the claim expires, like that of a rollout that was
// killed.
func (s *workloadRun) dropClaim(ctx context.Context, uid string) {
	s.mu.Lock()
	c, ok := s.claims[uid]
	delete(s.claims, uid)
	s.mu.Unlock()
	pod := s.watch.Last(uid)
	if !ok || pod == nil {
		return
	}
	if patch, err := rollout.Unclaim(uid, c.claim, c.before); err == nil {
		_ = s.Cluster.PatchPod(ctx, Patch{pod.Namespace, pod.Name, "", patch, false})
	}
}

// withdrawClaims withdraws the claims in all pods that are not changed.
func (s *workloadRun) withdrawClaims(ctx context.Context) {
	s.mu.Lock()
	var uids []string
	for uid := range s.claims {
		uids = append(uids, uid)
	}
	s.mu.Unlock()
	for _, uid := range uids {
		s.dropClaim(ctx, uid)
	}
}

// withdrawClaim removes the claim of this rollout from a pod that needs no change any more.
func (s *workloadRun) withdrawClaim(ctx context.Context, object *unstructured.Unstructured) error {
	claim := rollout.ClaimOf(object.GetAnnotations())
	s.mu.Lock()
	ours := claim.Holder != "" && s.watch.Claims(string(object.GetUID()), claim)
	s.mu.Unlock()
	if !ours {
		return nil
	}
	patch, err := rollout.Unclaim(string(object.GetUID()), claim, "")
	if err != nil {
		return err
	}
	err = s.Cluster.PatchPod(ctx, Patch{object.GetNamespace(), object.GetName(), "", patch, false})
	if err != nil {
		return explainPatchError("end of its claim", err)
	}
	return nil
}
