// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// restartWorkload replaces all pods of a workload, as kubectl rollout restart does.
func (s *workloadRun) restartWorkload(ctx context.Context) error {
	if done, err := s.proveOnePod(ctx); done || err != nil {
		return err
	}
	if _, err := s.inspectPods(ctx); err != nil && !apierrors.IsNotFound(err) { // so that the watch knows which pods are old
		return err
	}
	at, err := s.Cluster.Restart(ctx, s.w)
	if apierrors.IsNotFound(err) {
		s.reportGone()
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s in the namespace %s cannot be restarted: %w", s.w.Title(), s.w.Namespace, err)
	}
	return s.awaitRestart(ctx, at)
}

// proveOnePod evicts one pod before a restart and waits until its replacement is proved, because nothing can stop a restart whose new
// pods fail later. It proves nothing if the workload has only one pod, if a pod is proved at once, or if no pod may be evicted. Done
// reports whether no restart is necessary any more.
func (s *workloadRun) proveOnePod(ctx context.Context) (done bool, err error) {
	todo := s.w.Todo()
	if s.watch.Rules.Proof == 0 || s.w.Pods < 2 || len(todo) == 0 {
		return false, nil
	}
	s.proving = true
	s.watch.Expect(todo[:1])
	err = s.updatePods(ctx, todo[:1])
	s.proving = false
	switch {
	case errors.Is(err, errNoProof):
		return false, nil
	case err != nil:
		return false, err
	case s.isStopping(s.w.Namespace):
		return true, ErrStopped
	}
	if len(todo) == 1 {
		s.reportEvent(Event{Type: "workload", Namespace: s.w.Namespace, Workload: s.w.Title(), Way: rollout.Evict, Pods: 1, Message: s.w.Why})
	}
	return len(todo) == 1, nil
}

// reportGone reports that the workload no longer exists.
func (s *workloadRun) reportGone() {
	s.reportEvent(Event{Type: "gone", Namespace: s.w.Namespace, Workload: s.w.Title(), Pods: len(s.w.Todo()), Message: "it no longer exists"})
}

// awaitRestart waits until a workload has replaced its pods and the new pods are proved. The deadline starts again with each
// pod. Since is the time from which created pods are new, by the clock of the API server, or zero if another client has restarted the
// workload. If the rollout has to stop, the restart goes on, and the next rollout awaits it.
func (s *workloadRun) awaitRestart(ctx context.Context, since time.Time) error {
	w, deadline, updated, waits := s.w, time.Now().Add(s.Limits.Timeout), 0, "an answer of the API server"
	s.begun = true
	for {
		object, err := s.Cluster.Workload(ctx, w)
		if apierrors.IsNotFound(err) {
			s.reportGone()
			return nil
		}
		if err != nil && isAccessDenied(err) {
			return err
		}
		if err == nil {
			p, err := s.readProgress(ctx, w, object, since)
			switch {
			case err != nil:
				return err
			case p.Failed != "":
				s.noteIncomplete(fmt.Sprintf("%s in the namespace %s (restarted, its new pods do not start)", w.Title(), w.Namespace))
				return &podError{name: p.pod, err: fmt.Errorf("%s in the namespace %s: %s", w.Title(), w.Namespace, p.Failed)}
			case p.Done:
				if err := s.verifyRestart(ctx, w, object, since); err != nil {
					return err
				}
				if err := s.awaitProof(ctx); err != nil {
					return err
				}
				s.reportEvent(Event{Type: "workload", Namespace: w.Namespace, Workload: w.Title(), Way: w.Way, Pods: len(w.Todo()), Message: w.Why})
				return nil
			case p.Updated > updated:
				updated, deadline = p.Updated, time.Now().Add(s.Limits.Timeout)
			}
			waits = p.Waits
			if time.Now().After(deadline) {
				return s.noProgressError(ctx, w, object, waits)
			}
			if err := s.checkStillReady(ctx); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return s.noProgressError(ctx, w, nil, waits)
		}
		s.reportWait("", waits)
		err = s.awaitChange(ctx, 1)
		if s.toldToStop() {
			err = ErrStopped
		}
		if err != nil {
			s.noteIncomplete(fmt.Sprintf("%s in the namespace %s (restarted, not complete)", w.Title(), w.Namespace))
			return err
		}
	}
}

// checkStillReady returns an error if a new pod was ready and is not ready any more. The workload's controller does not stop because of
// that.
func (s *workloadRun) checkStillReady(ctx context.Context) error {
	if _, err := s.inspectPods(ctx); err != nil {
		return nil //nolint:nilerr // the next inspection may succeed, and there is a deadline
	}
	fallen := s.watch.Fallen()
	if fallen == nil {
		return nil
	}
	s.noteIncomplete(fmt.Sprintf("%s in the namespace %s (restarted, its new pods do not stay ready)", s.w.Title(), s.w.Namespace))
	return s.stopError(ctx, fallen)
}

// awaitProof waits until the new pods of the workload are proved.
func (s *workloadRun) awaitProof(ctx context.Context) error {
	last := time.Now()
	for s.watch.Rules.Proof > 0 {
		sight, err := s.inspectPods(ctx)
		if err != nil && (isAccessDenied(err) || ctx.Err() != nil || time.Since(last) > s.Limits.Timeout) {
			return err
		}
		polls := 1
		if err == nil {
			last = time.Now()
			d, err := s.decideChanges(ctx, nil, sight.Desired, false)
			if err != nil {
				return err
			}
			if d.Stop != nil {
				s.noteIncomplete(fmt.Sprintf("%s in the namespace %s (restarted, its new pods do not stay ready)", s.w.Title(), s.w.Namespace))
				return s.stopError(ctx, d.Stop)
			}
			open := s.watch.Open()
			if len(open) == 0 {
				return nil
			}
			polls = s.pollsToWait(d, open)
		}
		err = s.awaitChange(ctx, polls)
		if s.toldToStop() {
			err = ErrStopped
		}
		if err != nil {
			s.noteIncomplete(fmt.Sprintf("%s in the namespace %s (restarted, not complete)", s.w.Title(), s.w.Namespace))
			return err
		}
	}
	return nil
}

// noProgressError returns the error about a restarted workload that does not progress. It names one of its pods that is not ready.
func (r *Rollout) noProgressError(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, waits string) error {
	r.noteIncomplete(fmt.Sprintf("%s in the namespace %s (restarted, not complete)", w.Title(), w.Namespace))
	failed := &podError{err: fmt.Errorf("%s in the namespace %s has not progressed for %s: it waits for %s", w.Title(), w.Namespace, r.Limits.Timeout, waits)}
	if object == nil {
		return failed
	}
	err := r.eachNewPod(ctx, w, object, time.Time{}, func(pod *corev1.Pod) error {
		if failed.name == "" && !rollout.IsReady(pod) {
			failed.name = pod.Name
		}
		return nil
	})
	if err == nil && failed.name != "" && w.Kind == "StatefulSet" {
		failed.err = fmt.Errorf("%w; its pod %s is not ready, and a StatefulSet does not replace such a pod, so delete it", failed.err, failed.name)
	}
	return failed
}

// progress is how far the restart of a workload is, and the name of a new pod that fails, or "".
type progress struct {
	rollout.Progress

	pod string
}

// readProgress reads how far a workload is, and whether one of its new pods does not start.
func (r *Rollout) readProgress(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, since time.Time) (p progress, err error) {
	object.SetKind(w.Kind)
	text, err := object.MarshalJSON()
	if err != nil {
		return p, err
	}
	if p.Progress, err = rollout.ProgressOf(text); err != nil || p.Done || p.Failed != "" {
		return p, err
	}
	if since.IsZero() { // another client has restarted it, so it is not known which pods are new
		return p, nil
	}
	err = r.eachNewPod(ctx, w, object, since, func(pod *corev1.Pod) error {
		if why := rollout.Stuck(pod); why != "" {
			p.Failed, p.pod = fmt.Sprintf("its new pod %s: %s", pod.Name, why), pod.Name
		}
		if why := rollout.Unscheduled(pod); why != "" {
			p.Waits = fmt.Sprintf("a node for its new pod %s: %s", pod.Name, why)
		}
		return nil
	})
	return p, err
}

// verifyRestart returns an error if a restarted workload has not replaced all of its pods, or if a new pod is not current, for
// example because a replica of Pillion did not know the template yet. Without this check, every further rollout would restart the
// workload again.
func (r *Rollout) verifyRestart(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, since time.Time) error {
	if since.IsZero() {
		return nil
	}
	var old *rollout.Pod
	err := r.eachNewPod(ctx, w, object, since, func(pod *corev1.Pod) error {
		if old != nil {
			return nil
		}
		text, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		now, err := r.Plan(w.Namespace, text)
		if err == nil && !isCurrent(now) {
			old = now
		}
		return err
	})
	if err != nil {
		return err
	}
	if old != nil {
		return &podError{name: old.Name, err: fmt.Errorf("%s in the namespace %s was restarted, but its new pod %s is %s; maybe not all replicas of Pillion use the templates yet", w.Title(), w.Namespace, old.Name, old.State)}
	}
	selector, err := selectorOf(object)
	if err != nil {
		return err
	}
	for _, p := range w.Todo() {
		if !selector.Matches(labels.Set(p.Labels)) {
			return &podError{name: p.Name, err: fmt.Errorf("%s in the namespace %s was restarted, but not its pod %s, whose labels it does not select", w.Title(), w.Namespace, p.Name)}
		}
	}
	return nil
}

func selectorOf(workload *unstructured.Unstructured) (labels.Selector, error) {
	selector := &metav1.LabelSelector{}
	spec, _, _ := unstructured.NestedMap(workload.Object, "spec", "selector")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, selector); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(selector)
}

// eachNewPod passes the pods of a workload that were created since its restart to each.
func (r *Rollout) eachNewPod(ctx context.Context, w *rollout.Workload, object *unstructured.Unstructured, since time.Time, each func(*corev1.Pod) error) error {
	selector, err := selectorOf(object)
	if err != nil {
		return err
	}
	_, err = r.Cluster.EachPod(ctx, w.Namespace, metav1.ListOptions{LabelSelector: selector.String()}, func(pod *corev1.Pod) error {
		if pod.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
			return nil
		}
		return each(pod)
	})
	return err
}
