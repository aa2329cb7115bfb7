// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// If a pod fails and the template has onFailure: Undo, the controller undoes the rollout: it puts the pods that it has changed in place
// back to the content that they had before, which each pod records. All state is in the cluster, as for a rollout: a plan finds the pods that
// still have to go back, and status.failed has what is done.

// continueUndo undoes a rollout that has failed, if the template says so. It returns after how long to continue, or 0 if the rollout may
// go on in other namespaces meanwhile.
func (r *rollouts) continueUndo(ctx context.Context, t *subject, namespaces []string) (wait time.Duration) {
	places, key := t.namespacesToUndo(namespaces), t.entry.Key()
	p := r.lastPlan(key)
	if len(places) == 0 || r.now().Before(p.undo) {
		return 0
	}
	wait, err := r.undoRollout(ctx, t, places)
	if err != nil {
		wait = r.writeCannotPlan(ctx, t, err)
	}
	if wait < retryAfter {
		return wait
	}
	p = r.lastPlan(key)
	p.undo = r.now().Add(wait)
	r.notePlan(key, p)
	return 0
}

// namespacesToUndo returns those of the given namespaces in which pods may have to go back.
func (t *subject) namespacesToUndo(namespaces []string) (places []string) {
	if !t.undoesFailure() || t.status.Revision == "" {
		return nil
	}
	for i := range t.status.Failed {
		f := &t.status.Failed[i]
		switch {
		case f.Undo != nil && f.Undo.Done:
		case t.spec.Scope == v1alpha1.ScopeAll:
			return namespaces
		case slices.Contains(namespaces, f.Namespace):
			places = append(places, f.Namespace)
		}
	}
	return places
}

// undoRollout puts pods in the namespaces of places back to the content that they had before the rollout. It returns after how long to
// continue, or 0 if nothing is left to do.
func (r *rollouts) undoRollout(ctx context.Context, t *subject, places []string) (wait time.Duration, err error) {
	limits, err := r.limitsOf(&t.spec)
	if err != nil {
		return 0, err
	}
	limits.First, limits.Shares, limits.StopAll, limits.Undo = 0, []int{100}, false, true
	bounds := t.rolloutBounds()
	bounds.InPlace, bounds.Undo = true, true
	targets, err := r.planPods(ctx, t, places, bounds)
	if err != nil {
		return 0, err
	}
	all := targets.Workloads
	r.noteUndone(t, places, all)
	if !slices.ContainsFunc(all, (*rollout.Workload).Acts) {
		if len(t.namespacesToUndo(places)) > 0 { // workloads are replacing their pods, and have to end that first
			wait = retryAfter
		}
		r.writeStopped(ctx, t)
		return wait, nil
	}
	execution := &executor.Rollout{Cluster: r.cluster, Limits: limits, Template: t.entry.Name, Plan: targets.Plan}
	end := r.runTurn(ctx, t, execution, all, func(event *executor.Event, e *end) bool { return r.reportUndo(ctx, t, event, e) })
	switch {
	case ctx.Err() != nil:
		return retryAfter, nil //nolint:nilerr // the next replica that leads continues
	case missingRight(end.err):
		r.stopForError(ctx, t, end.err)
		return retryAfter, nil
	case end.failed:
		r.writeStopped(ctx, t) // others may go back later
		return retryAfter, nil
	case end.err != nil && !errors.Is(end.err, executor.ErrStopped):
		r.stopForError(ctx, t, end.err)
		return retryAfter, nil
	}
	r.writeConditions(ctx, t, t.conditionDegraded())
	return time.Millisecond, nil // to see what is left
}

// reportUndo reports what happens while pods go back. It returns false, because a failure stops nothing else.
func (r *rollouts) reportUndo(ctx context.Context, t *subject, event *executor.Event, e *end) (stops bool) {
	progress := func(what string) {
		message := fmt.Sprintf("%s %d of %d pods have again what they had before.", what, event.Done, event.Total)
		r.writeConditions(ctx, t, conditionProgressing(true, v1alpha1.ReasonUndoing, message), t.conditionDegraded(), notPaused())
	}
	switch event.Type {
	case "wave":
		progress("The rollout is being undone.")
	case "waiting":
		progress(shortenMessage(fmt.Sprintf("%s in the namespace %s waits for %s.", cmp.Or(event.Pod, event.Workload), event.Namespace, event.Message)))
	case "pod":
		t.changeUndo(event.Namespace, func(u *v1alpha1.RolloutUndo) { u.Pods++ })
	case "failed":
		if e.failed = true; !missingRight(event.Err) {
			t.changeUndo(event.Namespace, func(u *v1alpha1.RolloutUndo) { u.Message = shortenMessage(event.Message) })
		}
	}
	return false
}

// changeUndo changes what the status reports about undoing the rollout in a namespace. With the scope All, pods also go back in
// namespaces in which no pod has failed; those count in the first failure.
func (t *subject) changeUndo(namespace string, change func(u *v1alpha1.RolloutUndo)) {
	t.status.Failed = slices.Clone(t.status.Failed)
	i := max(0, slices.IndexFunc(t.status.Failed, func(f v1alpha1.FailedRollout) bool { return f.Namespace == namespace }))
	u := &v1alpha1.RolloutUndo{}
	if of := t.status.Failed[i].Undo; of != nil {
		*u = *of
	}
	change(u)
	t.status.Failed[i].Undo = u
}

// noteUndone notes the namespaces in which no further pod can be put back. A workload that is replacing its pods has to end that first,
// because its new pods get the content of the template.
func (r *rollouts) noteUndone(t *subject, places []string, all []*rollout.Workload) {
	for i := range t.status.Failed {
		f := &t.status.Failed[i]
		of := func(w *rollout.Workload) bool { return w.Namespace == f.Namespace || t.spec.Scope == v1alpha1.ScopeAll }
		if f.Undo != nil && f.Undo.Done || !slices.Contains(places, f.Namespace) && t.spec.Scope != v1alpha1.ScopeAll ||
			slices.ContainsFunc(all, func(w *rollout.Workload) bool { return of(w) && w.Way != rollout.Await && w.Acts() }) {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(all), func(w *rollout.Workload) bool { return !of(w) })
		var replaces []string
		for _, w := range own {
			if w.Way == rollout.Await {
				w.Way, w.Why = rollout.Cannot, "it is replacing its pods"
				replaces = append(replaces, w.Title()+" in the namespace "+w.Namespace)
			}
		}
		if len(replaces) > 0 {
			t.changeUndo(f.Namespace, func(u *v1alpha1.RolloutUndo) {
				u.Message = shortenMessage("waiting for workloads that replace their pods, for example " + replaces[0])
			})
			continue
		}
		t.changeUndo(f.Namespace, func(u *v1alpha1.RolloutUndo) {
			u.Done, u.Message = true, strings.TrimSuffix(describeLeft(own, "put back"), ".")
		})
		r.event(t.object, corev1.EventTypeNormal, "RolloutUndone", shortenMessage(undoText(&t.status.Failed[i])+t.nextAdvice()))
	}
}
