// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// updatePods changes pods of the workload, or evicts them, and returns when all of them are proved, or when nothing more may change and
// no pod is between its change and its proof.
func (s *workloadRun) updatePods(ctx context.Context, pods []*rollout.Pod) error {
	next := map[string]*rollout.Pod{}
	var order []string
	for _, p := range pods {
		next[p.UID], order = p, append(order, p.UID)
	}
	s.begun = true
	defer s.withdrawClaims(ctx)
	var failure error
	last := time.Now() // when the pods were last seen
	for {
		decision, err := s.nextDecision(ctx, &order, failure == nil)
		switch {
		case err == nil:
			last = time.Now()
		case isAccessDenied(err), ctx.Err() != nil:
			return s.failIncomplete(err)
		case time.Since(last) > s.Limits.Timeout:
			return s.failIncomplete(fmt.Errorf("%s in the namespace %s cannot be read: %w", s.w.Title(), s.w.Namespace, err))
		}
		if err := s.recordChanges(ctx, decision.Proved); err != nil && failure == nil {
			failure = err
		}
		if decision.Stop != nil && decision.Stop.Blocked && s.proving {
			return errNoProof
		}
		if decision.Stop != nil && failure == nil {
			failure = s.stopError(ctx, decision.Stop)
			s.failWorkload(s.w, failure, s.incompletePods()...)
		}
		if err := s.beginChanges(ctx, decision.Change, next); err != nil && failure == nil {
			failure = err
		}
		open := s.watch.Open()
		switch over := len(order) == 0 || failure != nil || s.isStopping(s.w.Namespace); {
		case failure != nil && !s.watch.Bakes():
			s.noteIncompletePods()
			return failure
		case over && len(open) == 0 && len(decision.Change) == 0 && err == nil:
			if len(order) > 0 && s.toldToStop() {
				return ErrStopped
			}
			return nil
		}
		if err := s.awaitChange(ctx, s.pollsToWait(decision, open)); err != nil {
			return s.failIncomplete(err)
		}
	}
}

// nextDecision inspects the pods, claims those that may change, and decides which of them change now. Order has the UIDs of the pods
// that wait for their change; nextDecision removes those that no longer wait. If more is false, no pod may begin to change.
func (s *workloadRun) nextDecision(ctx context.Context, order *[]string, more bool) (d rollout.Decision, err error) {
	sight, err := s.inspectPods(ctx)
	if err != nil {
		return d, err
	}
	*order = slices.DeleteFunc(*order, func(uid string) bool { return !s.watch.Waits(uid) })
	candidates := *order
	if !more || s.isStopping(s.w.Namespace) {
		candidates = nil
	}
	if d, err = s.decideChanges(ctx, candidates, sight.Desired, false); err != nil || len(d.Change) == 0 {
		return d, err
	}
	granted, err := s.claimPods(ctx, d.Change, sight)
	granted.Proved = slices.Concat(d.Proved, granted.Proved)
	return granted, err
}

// claimPods claims pods, and decides which of them may change. Another rollout may have claimed pods of the workload since the
// first decision, so the pods are inspected again. See [rollout.Claim].
func (s *workloadRun) claimPods(ctx context.Context, uids []string, sight *Sight) (d rollout.Decision, err error) {
	var group sync.WaitGroup
	failures := make([]error, len(uids))
	for i, uid := range uids {
		group.Go(func() { failures[i] = s.claimPod(ctx, uid, s.watch.Last(uid)) })
	}
	group.Wait()
	var owned []string
	for i, uid := range uids {
		switch failure := failures[i]; {
		case failure == nil:
			owned = append(owned, uid)
		case !apierrors.IsConflict(failure) && !apierrors.IsNotFound(failure): // otherwise the next decision tries again
			err = failure
		}
	}
	if len(owned) == 0 {
		return d, err
	}
	if sight, err = s.inspectAgain(ctx, sight); err != nil {
		return d, err
	}
	if d, err = s.decideChanges(ctx, owned, sight.Desired, true); err != nil {
		return d, err
	}
	for _, uid := range owned {
		if !slices.Contains(d.Change, uid) {
			s.dropClaim(ctx, uid)
		}
	}
	return d, nil
}

// beginChanges changes or evicts pods, at the same time.
func (s *workloadRun) beginChanges(ctx context.Context, uids []string, next map[string]*rollout.Pod) error {
	do := s.changePod
	if s.evictsPods() {
		do = s.evictPod
	}
	return inParallel(len(uids), func(i int) error {
		p := next[uids[i]]
		err := do(ctx, p)
		if err == nil {
			return nil
		}
		if s.isUnchanged(p.UID, err) {
			s.releaseBudgets(p.UID)
		}
		if !errors.As(err, new(*podError)) && !errors.Is(err, ErrStopped) {
			err = newPodError(p.Namespace, p.Name, err)
		}
		return err
	})
}

// isUnchanged reports whether a pod is certainly as it was before the request that failed with err. If a response is lost, the API
// server may have changed or evicted the pod. It then still counts as disrupted in its budgets, so that other workloads, which go on
// until they notice that this one has failed, do not use these up.
func (s *workloadRun) isUnchanged(uid string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changedFields[uid] == "" && (errors.Is(err, errAgain) || isDenied(err) || apierrors.IsUnauthorized(err))
}
