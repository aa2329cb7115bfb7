// SPDX-License-Identifier: Apache-2.0

package update

import (
	"cmp"
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
	// Type is plan, wave, pod, workload, skipped, waiting, failed, stopped or done.
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
	// Patience is how long nothing happens until Report receives what a pod or a workload waits for. The default is 10 s.
	Patience time.Duration
	// Stop ends the rollout if it is closed. Pods that are being changed are completed. A restart goes on, and the next
	// rollout awaits it.
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

// podError is an error about a pod. The name is "" if the pod is missing.
type podError struct {
	name string
	err  error
}

// aboutPod returns an error that begins with the pod.
func aboutPod(namespace, name string, err error) *podError {
	return &podError{name, fmt.Errorf("pod %s in the namespace %s: %w", name, namespace, err)}
}

func (e *podError) Error() string { return e.err.Error() }

func (e *podError) Unwrap() error { return e.err }

// toldToStop reports whether Stop is closed.
func (r *Rollout) toldToStop() bool {
	select {
	case <-r.Stop: // nil: never
		return true
	default:
		return false
	}
}

// stopping reports whether nothing more may begin.
func (r *Rollout) stopping() bool {
	select {
	case <-r.Stop:
		return true
	case <-r.failed:
		return true
	default:
		return false
	}
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

// waiting returns a function that reports what a pod or a workload waits for, if this takes long.
func (r *Rollout) waiting(e Event) func(what string) {
	e.Type = "waiting"
	last, patience := time.Now(), cmp.Or(r.Patience, 10*time.Second)
	return func(what string) {
		if time.Since(last) < patience || e.Message == what && time.Since(last) < 6*patience {
			return
		}
		last, e.Message = time.Now(), what
		r.say(e)
	}
}

// leaves records that something is not complete.
func (r *Rollout) leaves(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.half = append(r.half, what)
}

func (r *Rollout) sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.Limits.Poll):
		return nil
	}
}
