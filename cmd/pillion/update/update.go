// SPDX-License-Identifier: Apache-2.0

package update

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// Limits are what a user sets.
type Limits struct {
	First       int // the number of workloads in the first wave; 0: as many as in the others
	Parallel    int // the number of workloads in each wave
	Unavailable rollout.Unavailable
	Timeout     time.Duration // for each pod or restart without progress
	MinReady    time.Duration // how long a pod must be ready
	Poll        time.Duration
}

// Event is something that happened. Its JSON is a stable format for scripts.
type Event struct {
	Time time.Time `json:"time"`
	// Type is plan, wave, pod, workload, skipped, failed, stopped or done.
	Type      string           `json:"type"`
	Namespace string           `json:"namespace,omitempty"`
	Workload  string           `json:"workload,omitempty"` // KIND/NAME
	Pod       string           `json:"pod,omitempty"`
	Way       rollout.Way      `json:"way,omitempty"`
	Pods      int              `json:"pods,omitempty"`    // that change, or have changed
	Changes   []rollout.Change `json:"changes,omitempty"` // of a pod, or an example
	Message   string           `json:"message,omitempty"`
	Done      int              `json:"done"`
	Total     int              `json:"total"`
}

// Rollout updates the pods of workloads.
type Rollout struct {
	Cluster Cluster
	Limits  Limits
	// Plan plans one pod again, with its present state.
	Plan func(namespace string, pod []byte) (*rollout.Pod, error)
	// Report receives what happens. It may be called from several goroutines, one at a time.
	Report func(Event)
	// Pause is called between two waves. It may be nil. An error ends the rollout.
	Pause func(ctx context.Context, wave int, next []*rollout.Workload) error
	// Stop ends the rollout if it is closed. Pods that are being changed are completed.
	Stop <-chan struct{}

	mu     sync.Mutex // guards all below, and Report
	done   int
	total  int
	flight map[string]int // disruptions by namespace and budget
	half   []string       // what is not complete
	failed chan struct{}  // closed after the first failure
	first  error
}

// ErrStopped is returned if the rollout was stopped before its end.
var ErrStopped = errors.New("stopped")

// FailedError is the reason why a rollout has ended, and what it has left half done.
type FailedError struct {
	Cause error
	Half  []string
}

func (e *FailedError) Error() string {
	text := e.Cause.Error()
	if len(e.Half) > 0 {
		text += "; half done: " + strings.Join(e.Half, ", ")
	}
	return text
}

func (e *FailedError) Unwrap() error { return e.Cause }

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
	r.say(Event{Type: "failed", Namespace: w.Namespace, Workload: w.Title(), Message: err.Error()})
}

func (r *Rollout) stopping() bool {
	select {
	case <-r.Stop: // nil: never
		return true
	case <-r.failed:
		return true
	default:
		return false
	}
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
		return r.follow(ctx, w, time.Time{})
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
				if first == nil {
					first = fmt.Errorf("pod %s in the namespace %s: %w", p.Name, p.Namespace, err)
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

// say reports an event.
func (r *Rollout) say(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Type == "pod" || e.Type == "skipped" || e.Type == "workload" {
		r.done += max(1, e.Pods)
	}
	e.Time, e.Done, e.Total = time.Now().UTC().Truncate(time.Millisecond), r.done, r.total
	if r.Report != nil {
		r.Report(e)
	}
}

// leaves records that something is not complete.
func (r *Rollout) leaves(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.half = append(r.half, what)
}
