// SPDX-License-Identifier: Apache-2.0

package update

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// Run updates the workloads, wave by wave.
func (r *Rollout) Run(ctx context.Context, all []*rollout.Workload) error {
	waves := rollout.Waves(all, r.Limits.First, r.Limits.Parallel)
	r.failed, r.flight = make(chan struct{}), map[string]int{}
	for _, w := range all {
		if w.Acts() {
			r.total += len(w.Todo())
		}
	}
	for i, wave := range waves {
		if i > 0 && r.Pause != nil && !r.stopping() {
			if err := r.Pause(ctx, i+1, wave); err != nil {
				return err
			}
		}
		if r.stopping() {
			break
		}
		r.say(Event{Type: "wave", Message: fmt.Sprintf("wave %d of %d: %s", i+1, len(waves), titles(wave))})
		if err := r.wave(ctx, wave); err != nil {
			return err
		}
	}
	if r.stopping() {
		return &FailedError{ErrStopped, r.half}
	}
	return nil
}

func titles(wave []*rollout.Workload) string {
	const most = 5
	var names []string
	for i, w := range wave {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(wave)-most))
			break
		}
		names = append(names, w.Namespace+" "+w.Title())
	}
	return strings.Join(names, ", ")
}

// wave updates workloads at the same time.
func (r *Rollout) wave(ctx context.Context, wave []*rollout.Workload) error {
	var group sync.WaitGroup
	for _, w := range wave {
		group.Go(func() {
			if err := r.workload(ctx, w); err != nil {
				r.fail(w, err)
			}
		})
	}
	group.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		return nil
	}
	return &FailedError{r.first, r.half}
}

// fail ends the rollout.
func (r *Rollout) fail(w *rollout.Workload, err error) {
	if errors.Is(err, ErrStopped) {
		return // the pods that are left are not a failure
	}
	r.mu.Lock()
	if r.first == nil {
		r.first = err
		close(r.failed)
	}
	r.mu.Unlock()
	event := Event{Type: "failed", Namespace: w.Namespace, Workload: w.Title(), Message: err.Error()}
	if of, ok := errors.AsType[*podError](err); ok {
		event.Pod = of.name
	}
	r.say(event)
}

func (r *Rollout) workload(ctx context.Context, w *rollout.Workload) error {
	switch w.Way {
	case rollout.ChangeInPlace:
		return r.each(ctx, w, r.change)
	case rollout.Evict:
		return r.each(ctx, w, r.evict)
	case rollout.Restart:
		return r.restart(ctx, w)
	case rollout.Await:
		return r.follow(ctx, w, w.Restarted)
	}
	return nil
}

// each handles the pods of a workload, as many at a time as may be unavailable. Those that are not
// ready come first, because they may need the change.
func (r *Rollout) each(ctx context.Context, w *rollout.Workload, do func(context.Context, *rollout.Workload, *rollout.Pod) error) error {
	free := make(chan struct{}, r.Limits.Unavailable.Of(w.Pods))
	var group sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, p := range unreadyFirst(w.Todo()) {
		free <- struct{}{}
		mu.Lock()
		stop := first != nil || r.stopping() || ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		group.Go(func() {
			defer func() { <-free }()
			if err := do(ctx, w, p); err != nil {
				mu.Lock()
				if of, other := errors.AsType[*podError](err); first == nil && other {
					first = of
				} else if first == nil {
					first = aboutPod(p.Namespace, p.Name, err)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if first == nil && ctx.Err() != nil {
		first = ctx.Err()
	}
	return first
}

func unreadyFirst(all []*rollout.Pod) []*rollout.Pod {
	var ready, unready []*rollout.Pod
	for _, p := range all {
		if p.Ready {
			ready = append(ready, p)
		} else {
			unready = append(unready, p)
		}
	}
	return append(unready, ready...)
}
