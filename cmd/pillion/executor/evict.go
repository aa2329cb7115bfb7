// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// evictPod deletes a pod if its PodDisruptionBudgets allow it. If they do not, the pod stays among those that wait, and is tried again.
func (s *workloadRun) evictPod(ctx context.Context, p *rollout.Pod) error {
	object := s.takeClaimed(p.UID)
	if metav1.GetControllerOf(object) == nil {
		return errors.New("it has lost its controller")
	}
	err := s.Cluster.Evict(ctx, p.Namespace, p.Name, p.UID)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsTooManyRequests(err):
		s.releaseBudgets(p.UID)
		if err := s.withdrawClaim(ctx, object); err != nil {
			return err
		}
		return s.postponeEviction()
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // an eviction is created, which such a namespace forbids
		s.leaveOut(p.UID)
		s.reportEvent(Event{Type: "gone", Namespace: p.Namespace, Workload: s.w.Title(), Pod: p.Name, Message: "its namespace is being deleted"})
		return s.withdrawClaim(ctx, object)
	case err != nil:
		return fmt.Errorf("it cannot be evicted: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deniedSince = time.Time{}
	s.watch.Evict(p.UID, time.Now())
	return nil
}

// proofShare is the divisor of the timeout that gives how long a restart waits until it may evict one pod as a proof. Then it begins
// without the proof, because a budget may never allow a disruption.
const proofShare = 5

// postponeEviction notes that a budget does not allow an eviction now. It returns an error if the rollout must not wait any longer.
func (s *workloadRun) postponeEviction() error {
	s.mu.Lock()
	if s.deniedSince.IsZero() {
		s.deniedSince = time.Now()
	}
	since := s.deniedSince
	s.mu.Unlock()
	switch {
	case s.proving && time.Since(since) > s.Limits.Timeout/proofShare:
		return errNoProof
	case s.isStopping(s.w.Namespace):
		return ErrStopped
	case time.Since(since) > s.Limits.Timeout:
		return fmt.Errorf("a PodDisruptionBudget has not allowed to evict it for %s", s.Limits.Timeout)
	}
	s.reportWait("", "a PodDisruptionBudget to allow an eviction")
	return nil
}

// errNoProof is returned if no pod may be evicted before a restart.
var errNoProof = errors.New("no pod may be evicted")
