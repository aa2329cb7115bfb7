// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// Limits are what a user sets.
type Limits struct {
	rollout.Limits
	rollout.Waves

	Parallel int           // the number of workloads at a time
	Timeout  time.Duration // for each pod or restart without progress
	Poll     time.Duration
	StopAll  bool // a failure in one namespace stops the rollout in all
	Undo     bool // pods get again what they had before, see [rollout.Rules]
}

// Event is something that happened. Its JSON is a stable format for scripts.
type Event struct {
	Time time.Time `json:"time"`
	// Type is plan, wave, pod, workload, skipped, gone, waiting, failed, stopped or done.
	Type       string           `json:"type"`
	Namespace  string           `json:"namespace,omitempty"`
	Workload   string           `json:"workload,omitempty"` // KIND/NAME
	Pod        string           `json:"pod,omitempty"`
	Way        rollout.Way      `json:"way,omitempty"`
	Pods       int              `json:"pods,omitempty"`    // that change, or have changed
	Changes    []rollout.Change `json:"changes,omitempty"` // of the pod, or of one pod as an example
	Message    string           `json:"message,omitempty"`
	Blocked    bool             `json:"blocked,omitempty"` // of the type failed: no pod has failed because of the rollout
	Err        error            `json:"-"`                 // of the type failed
	Incomplete []string         `json:"-"`                 // of the type failed: what is half done now
	Done       int              `json:"done"`
	Total      int              `json:"total"`
}

// Rollout updates the pods of workloads.
type Rollout struct {
	Cluster Cluster
	Limits  Limits
	// Template is the name of the only template whose changes pods get, or "" for all templates.
	Template string
	// Plan plans one pod again, with its present state.
	Plan func(namespace string, pod []byte) (*rollout.Pod, error)
	// Report receives what happens. It may be called from several goroutines, one at a time.
	Report func(Event)
	// Pause is called between two waves. It may be nil. An error ends the rollout.
	Pause func(ctx context.Context, wave int, next []rollout.Part) error
	// Patience is how long nothing may happen before Report receives what a pod or a workload waits for. The default is 10 s.
	Patience time.Duration
	// Stop ends the rollout if it is closed. Pods that are being changed are completed. A restart goes on, and the next
	// rollout awaits it.
	Stop <-chan struct{}

	interrupted atomic.Bool // whether parts were left out because the rollout was stopped
	holder      string      // identifies this rollout in its claims

	mu          sync.Mutex // guards all below, and the maps of the workloadRuns, and calls of Report
	done        int
	total       int
	proved      int              // pods
	disruptions map[string]int   // disruptions by namespace and budget
	incomplete  []string         // what was begun and is not complete
	failures    map[string]error // by namespace
	causes      []error          // of all failures
}

// ErrStopped is returned if the rollout was stopped before its end.
var ErrStopped = errors.New("stopped")

// FailedError is the reason why a rollout has ended. Incomplete lists what it has begun and not completed, in words.
type FailedError struct {
	Cause      error
	Incomplete []string
}

// Error implements error.
func (e *FailedError) Error() string {
	text := e.Cause.Error()
	if len(e.Incomplete) > 0 {
		text += "; half done: " + strings.Join(e.Incomplete, ", ")
	}
	return text
}

// Unwrap returns the cause, for [errors.Is] and [errors.As].
func (e *FailedError) Unwrap() error { return e.Cause }

// podError is an error about a pod. The name is "" if the pod is not known.
type podError struct {
	name    string
	err     error
	blocked bool
}

// newPodError returns an error that begins with the pod.
func newPodError(namespace, name string, err error) *podError {
	return &podError{name: name, err: fmt.Errorf("pod %s in the namespace %s: %w", name, namespace, err)}
}

// Error implements error.
func (e *podError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
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

// isStopping reports whether nothing more may begin in a namespace.
func (r *Rollout) isStopping(namespace string) bool { return r.toldToStop() || r.hasFailed(namespace) }

// hasFailed reports whether a failure has stopped the rollout in a namespace.
func (r *Rollout) hasFailed(namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures[namespace] != nil || r.Limits.StopAll && len(r.failures) > 0
}

// failWorkload reports that a workload has failed. That stops the rollout in its namespace, or everywhere, unless the workload is only
// blocked. Incomplete is what was
// begun in the workload and is not complete. If the rollout was told to stop, the error is no failure.
func (r *Rollout) failWorkload(w *rollout.Workload, err error, incomplete ...string) {
	if errors.Is(err, ErrStopped) || errors.Is(err, context.Canceled) {
		r.interrupted.Store(true)
		return
	}
	event := Event{Type: "failed", Namespace: w.Namespace, Workload: w.Title(), Message: err.Error(), Err: err, Incomplete: incomplete}
	if of, ok := errors.AsType[*podError](err); ok {
		event.Pod, event.Blocked = of.name, of.blocked
	}
	r.mu.Lock()
	if r.failures[w.Namespace] == nil && !event.Blocked { // a workload that is blocked says nothing about others
		r.failures[w.Namespace] = err
	}
	r.causes = append(r.causes, err)
	r.mu.Unlock()
	r.reportEvent(event)
}

// isReported reports whether a failure was reported already.
func (r *Rollout) isReported(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.causes, err)
}

// reportEvent reports an event.
func (r *Rollout) reportEvent(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Type {
	case "pod", "workload":
		r.proved += max(1, e.Pods)
		r.done += max(1, e.Pods)
	case "skipped", "gone":
		r.done += max(1, e.Pods)
	}
	e.Time, e.Done, e.Total = time.Now().UTC().Truncate(time.Millisecond), r.done, r.total
	if r.Report != nil {
		r.Report(e)
	}
}

// newWaitReporter returns a function that reports what a pod waits for, or the workload if pod is "". It reports nothing as long as the
// wait is short, and repeats the same report rarely.
func (r *Rollout) newWaitReporter(e Event) func(pod, what string) {
	e.Type = "waiting"
	last, patience := time.Now(), cmp.Or(r.Patience, 10*time.Second)
	return func(pod, what string) {
		r.mu.Lock()
		told := time.Since(last) < patience || e.Message == what && e.Pod == pod && time.Since(last) < 6*patience
		if !told {
			last, e.Message, e.Pod = time.Now(), what, pod
		}
		r.mu.Unlock()
		if !told {
			r.reportEvent(e)
		}
	}
}

// noteIncomplete records, in words, something that was begun and is not complete.
func (r *Rollout) noteIncomplete(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.incomplete = append(r.incomplete, what)
}
