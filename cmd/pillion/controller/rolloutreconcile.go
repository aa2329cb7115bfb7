// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Reconcile implements [reconcile.Reconciler].
func (r *rollouts) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx = cluster.WithTenant(ctx, request.Namespace)
	t := r.getSubject(request.NamespacedName)
	if t == nil {
		r.forgetTemplate(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if t.unsaved != nil {
		r.saveReport(ctx, t, t.written)
		if t.unsaved != nil && t.spec.Acts() && t.hasStopped() { // nothing goes on as long as the API server does not know the failure
			return reconcile.Result{}, t.unsaved
		}
	}
	wait := r.continueRollout(ctx, t)
	if wait == 0 && t.differs {
		wait = staleFor
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, nil //nolint:nilerr // the next replica that leads continues
	}
	return reconcile.Result{RequeueAfter: wait}, t.unsaved
}

// continueRollout plans and runs a rollout, or undoes it. It returns after how long to continue, or 0 for when the template changes.
func (r *rollouts) continueRollout(ctx context.Context, t *subject) (wait time.Duration) {
	switch {
	case !t.spec.Acts():
		r.clearStatus(ctx, t)
		return 0
	case t.spec.Paused:
		r.writePaused(ctx, t)
		return 0
	case !t.isReady():
		r.writeNotUsed(ctx, t)
		return 0 // when it becomes ready, its status changes, which causes another request
	}
	t.origin = r.originOf(t)
	enabled, err := r.enabledNamespaces(ctx, t)
	if err != nil {
		return r.writeCannotPlan(ctx, t, err)
	}
	namespaces := enabled
	if t.hasStopped() {
		if wait := r.continueUndo(ctx, t, enabled); wait > 0 {
			return wait
		}
		if namespaces, err = r.keepUnaffected(ctx, t, enabled); err != nil {
			return r.writeCannotPlan(ctx, t, err)
		}
		if len(namespaces) == 0 && len(t.status.Failed) > 0 {
			if len(t.namespacesToUndo(enabled)) == 0 { // otherwise, the conditions say how far the undo is
				r.writeStopped(ctx, t)
			}
			return retryAfter
		}
	} else {
		t.status.Failed = nil // of an earlier content
	}
	return r.continueIn(ctx, t, namespaces)
}

// continueIn plans and runs a rollout in some namespaces, if that is necessary. It returns after how long to continue.
func (r *rollouts) continueIn(ctx context.Context, t *subject, namespaces []string) (wait time.Duration) {
	key, now := t.entry.Key(), r.now()
	p := r.lastPlan(key)
	if from := planOrigin(t.origin, namespaces); p.from != from {
		p = planned{from: from, known: now, other: p.other, undo: p.undo}
		r.notePlan(key, p)
	}
	// Until all replicas use a canary, or no longer use it, and until a plan that failed is due again.
	if rest := max(settleTime-now.Sub(p.known), p.retry.Sub(now)); rest > 0 {
		return rest
	}
	outdated := r.countOutdated(t, namespaces)
	if p.stillHolds(outdated, now) && !t.hasStopped() && !t.lacksPlan() {
		return recheckEvery
	}
	wait, err := r.updatePods(ctx, t, namespaces)
	if err != nil {
		wait = r.writeCannotPlan(ctx, t, err)
	}
	p = r.lastPlan(key) // both may have changed it
	switch {
	case err != nil:
		p.retry = r.now().Add(wait)
		r.notePlan(key, p)
		return wait
	case wait == 0:
		return time.Millisecond
	}
	if wait == retryAfter && p.wait < replanEvery { // other clients replace pods, perhaps without end, so the pauses become longer
		wait = min(max(wait, 2*p.wait), replanEvery-retryAfter)
	}
	p.outdated, p.at, p.wait = outdated, r.now(), wait
	r.notePlan(key, p)
	return min(wait, recheckEvery)
}

// countOutdated returns how many pods in the namespaces have an older revision of a template.
func (r *rollouts) countOutdated(t *subject, namespaces []string) (n int64) {
	for _, namespace := range namespaces {
		n += r.count(types.NamespacedName{Namespace: namespace, Name: t.entry.Name}, t.status.Revision).Outdated
	}
	return n
}

// planOrigin returns a string that changes if the templates or the namespaces change from which a plan was made.
func planOrigin(origin string, namespaces []string) string { return fmt.Sprint(origin, namespaces) }

// keepUnaffected returns the namespaces in which no failure stops the rollout of a template. It removes failures that are fixed from
// t.status. With the scope All, one failure stops all namespaces.
func (r *rollouts) keepUnaffected(ctx context.Context, t *subject, namespaces []string) (left []string, err error) {
	var still []v1alpha1.FailedRollout
	for i := range t.status.Failed {
		fixed, err := r.isFixed(ctx, t, &t.status.Failed[i], namespaces)
		if err != nil {
			return nil, err
		}
		if !fixed {
			still = append(still, t.status.Failed[i])
		}
	}
	if t.status.Failed = still; len(still) > 0 && t.spec.Scope == v1alpha1.ScopeAll {
		return nil, nil
	}
	return slices.DeleteFunc(slices.Clone(namespaces), func(name string) bool {
		return slices.ContainsFunc(still, func(f v1alpha1.FailedRollout) bool { return f.Namespace == name })
	}), nil
}

// isFixed reports whether a failure no longer stops the rollout: the namespace is not updated any more, the failed pod is gone, or the
// pod has all changes and has been ready for long enough. If the template undoes failed rollouts, only another content fixes it.
func (r *rollouts) isFixed(ctx context.Context, t *subject, failed *v1alpha1.FailedRollout, namespaces []string) (bool, error) {
	if !slices.Contains(namespaces, failed.Namespace) {
		return true, nil
	}
	if t.undoesFailure() { // the content has failed, whatever happens to the pod
		return false, nil
	}
	targets, err := r.planPods(ctx, t, []string{failed.Namespace}, t.rolloutBounds())
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(targets.Workloads, func(w *rollout.Workload) bool { return w.Title() == failed.Workload })
	if failed.Pod == "" {
		return i < 0, nil
	}
	behind := &rollout.Pod{} // stays empty if the failed pod is current
	if i >= 0 {
		for _, p := range targets.Workloads[i].Behind {
			if p.Name == failed.Pod {
				behind = p
			}
		}
	}
	if behind.Name != "" && !behind.Unrecorded() {
		return false, nil
	}
	object, err := r.cluster.Pod(ctx, failed.Namespace, failed.Pod)
	if err != nil {
		return behind.Name == "" && apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		return false, err
	}
	limits, err := r.limitsOf(&t.spec)
	if err != nil {
		return false, err
	}
	now, proof := r.now(), rollout.Limits{}.Rules(limits.Limits, limits.Timeout).Proof
	return rollout.Check(pod, nil, behind.Own, true).Done && rollout.Steady(pod, behind.Own, now.Add(-steady)) && rollout.ReadySince(pod, now.Add(-proof)), nil
}
