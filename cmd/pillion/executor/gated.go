// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// update changes pods of the workload, or evicts them, and returns when all are proved.
func (s *run) update(ctx context.Context, pods []*rollout.Pod) error {
	next := map[string]*rollout.Pod{}
	var order []string
	for _, p := range pods {
		next[p.UID], order = p, append(order, p.UID)
	}
	s.begun = true
	var failure error
	last := time.Now() // when the pods were last seen
	for {
		decision, err := s.step(ctx, &order, failure == nil)
		switch {
		case err == nil:
			last = time.Now()
		case denied(err), ctx.Err() != nil:
			return s.leave(err)
		case time.Since(last) > s.Limits.Timeout:
			return s.leave(fmt.Errorf("%s in the namespace %s cannot be read: %w", s.w.Title(), s.w.Namespace, err))
		}
		if err := s.record(ctx, decision.Proved); err != nil && failure == nil {
			failure = err
		}
		if decision.Stop != nil && decision.Stop.Blocked && s.proving {
			return errNoProof
		}
		if decision.Stop != nil && failure == nil {
			failure = s.stopped(ctx, decision.Stop)
			s.fail(s.w, failure, s.half()...)
		}
		if err := s.begin(ctx, decision.Change, next); err != nil && failure == nil {
			failure = err
		}
		open := s.watch.Open()
		switch over := len(order) == 0 || failure != nil || s.stopping(s.w.Namespace); {
		case failure != nil && !s.watch.Bakes():
			s.halfDone()
			return failure
		case over && len(open) == 0 && len(decision.Change) == 0 && err == nil:
			if len(order) > 0 && s.toldToStop() {
				return ErrStopped
			}
			return nil
		}
		if err := s.sleep(ctx, s.pace(decision, open)); err != nil {
			return s.leave(err)
		}
	}
}

// step inspects the pods, and decides. Order has the pods that wait for their change.
func (s *run) step(ctx context.Context, order *[]string, more bool) (d rollout.Decision, err error) {
	sight, err := s.look(ctx)
	if err != nil {
		return d, err
	}
	*order = slices.DeleteFunc(*order, func(uid string) bool { return !s.watch.Waits(uid) })
	candidates := *order
	if !more || s.stopping(s.w.Namespace) {
		candidates = nil
	}
	return s.decide(ctx, candidates, sight.Desired)
}

// begin changes or evicts pods, at the same time.
func (s *run) begin(ctx context.Context, uids []string, next map[string]*rollout.Pod) error {
	do := s.change
	if s.evicts() {
		do = s.evict
	}
	var group sync.WaitGroup
	failures := make([]error, len(uids))
	for i, uid := range uids {
		group.Go(func() {
			p := next[uid]
			if err := do(ctx, p); err != nil {
				s.release(uid)
				if failures[i] = err; !errors.As(err, new(*podError)) && !errors.Is(err, ErrStopped) {
					failures[i] = aboutPod(p.Namespace, p.Name, err)
				}
			}
		})
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}
