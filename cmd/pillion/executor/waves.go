// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// Run updates the workloads, wave by wave. A failure stops the rollout in its namespace, or everywhere if r.Limits.StopAll
// is set. A workload that is blocked by others stops nothing.
func (r *Rollout) Run(ctx context.Context, all []*rollout.Workload) error {
	r.failures, r.disruptions, r.holder = map[string]error{}, map[string]int{}, strings.ToLower(rand.Text()[:10])
	left, runs, gates := rollout.Parts(all), runs{}, map[string]*sync.Mutex{}
	for _, p := range left {
		r.total += len(p.Todo())
		if gates[p.Namespace] == nil {
			gates[p.Namespace] = &sync.Mutex{}
		}
		runs[p.Workload] = r.newRun(p.Workload, gates[p.Namespace])
	}
	ends := r.Limits.Ends(left)
	for i, taken := 0, 0; i < len(ends) && len(left) > 0; { // i is the wave, and taken the number of pods of the waves before it
		if err := r.inspectChangedPods(ctx, runs); err != nil {
			return err
		}
		if r.toldToStop() {
			break
		}
		if left = r.withoutFailed(left); len(left) == 0 {
			break
		}
		var wave []rollout.Part
		wave, left = rollout.TakeWave(left, ends[i]-taken)
		if len(wave) == 0 { // an earlier wave had more pods than its share, because all pods of a restart are in one wave
			i++
			continue
		}
		if taken > 0 && r.Pause != nil {
			if err := r.Pause(ctx, i+1, wave); err != nil {
				return err
			}
		}
		r.reportEvent(Event{Type: "wave", Message: fmt.Sprintf("wave %d of %d: %s", i+1, len(ends), waveTitles(wave))})
		r.updateWave(ctx, runs, wave)
		if ctx.Err() != nil {
			return r.endError(ctx.Err())
		}
		if r.hasProved() { // otherwise the wave proved nothing, and another one of the same size follows
			taken = ends[i]
			i++
		}
	}
	if err := r.inspectChangedPods(ctx, runs); err != nil {
		return err
	}
	if r.toldToStop() && len(left) > 0 || r.interrupted.Load() {
		return r.endError(ErrStopped)
	}
	return r.endError(nil)
}

// endError returns the error of a rollout that has ended: its failures, or otherwise the given one.
func (r *Rollout) endError(otherwise error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.causes) > 0 {
		return &FailedError{joinErrors(r.causes), r.incomplete}
	}
	if errors.Is(otherwise, ErrStopped) {
		return &FailedError{ErrStopped, r.incomplete}
	}
	return otherwise
}

// joinErrors returns several errors as one error, in one sentence.
func joinErrors(all []error) error {
	if len(all) == 1 {
		return all[0]
	}
	var texts []string
	for _, err := range all {
		texts = append(texts, err.Error())
	}
	return &joinedError{strings.Join(texts, "; "), all}
}

type joinedError struct {
	text string
	all  []error
}

// Error implements error.
func (e *joinedError) Error() string { return e.text }

// Unwrap returns the errors for [errors.Is] and [errors.As].
func (e *joinedError) Unwrap() []error { return e.all }

// withoutFailed leaves out the parts in which nothing more may change.
func (r *Rollout) withoutFailed(all []rollout.Part) []rollout.Part {
	return slices.DeleteFunc(all, func(p rollout.Part) bool { return r.isStopping(p.Namespace) })
}

// hasProved reports whether the waves so far have proved a pod, or nothing has failed.
func (r *Rollout) hasProved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) == 0 || r.proved > 0
}

// waveTitles returns the workloads of a wave for a message.
func waveTitles(wave []rollout.Part) string {
	const most = 5
	var names []string
	for i, p := range wave {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(wave)-most))
			break
		}
		title := p.Namespace + " " + p.Title()
		if n := len(p.Todo()); len(p.Pods) < n {
			title = fmt.Sprintf("%d of %d pods of %s", len(p.Pods), n, title)
		}
		names = append(names, title)
	}
	return strings.Join(names, ", ")
}

// updateWave updates parts of workloads, as many at a time as the limits allow.
func (r *Rollout) updateWave(ctx context.Context, runs runs, wave []rollout.Part) {
	var group sync.WaitGroup
	free := make(chan struct{}, max(1, r.Limits.Parallel))
	for _, p := range wave {
		free <- struct{}{}
		group.Go(func() {
			defer func() { runs[p.Workload].forgetPods(); <-free }()
			if r.isStopping(p.Namespace) || ctx.Err() != nil {
				r.interrupted.Store(r.interrupted.Load() || r.toldToStop())
				return
			}
			if err := runs[p.Workload].updatePart(ctx, p); err != nil && !r.isReported(err) {
				r.failWorkload(p.Workload, err, runs[p.Workload].ownIncomplete...)
			}
		})
	}
	group.Wait()
}

// updatePart updates a part of the workload.
func (s *workloadRun) updatePart(ctx context.Context, p rollout.Part) error {
	ctx, end := context.WithCancel(ctx)
	defer func() { end(); s.changes = nil }()
	switch p.Way {
	case rollout.ChangeInPlace, rollout.Evict:
		return s.updatePods(ctx, p.Pods)
	case rollout.Restart:
		return s.restartWorkload(ctx)
	case rollout.Await:
		return s.awaitRestart(ctx, p.Restarted)
	}
	return nil
}

// runs are those of all workloads of a rollout.
type runs map[*rollout.Workload]*workloadRun

// inspectChangedPods inspects all pods that the rollout has changed. If a pod is not ready any more, the workload has failed, but a pod
// that was proved at once may become ready again by itself: as long as there is such a pod, it repeats the inspection.
func (r *Rollout) inspectChangedPods(ctx context.Context, runs runs) error {
	workloads := slices.Collect(maps.Keys(runs))
	workloads = slices.DeleteFunc(workloads, func(w *rollout.Workload) bool { return !runs[w].begun || r.hasFailed(w.Namespace) })
	rollout.Sort(workloads)
	for slips := true; slips; {
		slips = false
		for _, w := range workloads {
			_, _ = runs[w].inspectPods(ctx) // if they cannot be read, what was seen last counts
			slips = slips || runs[w].watch.Slips()
		}
		if slips = slips && !r.toldToStop(); slips {
			select {
			case <-ctx.Done():
			case <-time.After(r.Limits.Poll):
			}
		}
		if ctx.Err() != nil {
			return r.endError(ctx.Err())
		}
	}
	for _, w := range workloads {
		if fallen := runs[w].watch.Fallen(); fallen != nil && !r.hasFailed(w.Namespace) {
			r.failWorkload(w, runs[w].stopError(ctx, fallen))
		}
		runs[w].forgetPods()
	}
	return nil
}
