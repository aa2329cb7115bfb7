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
	if r.isStale(t) {
		return reconcile.Result{RequeueAfter: settleTime / 10}, nil
	}
	switch {
	case !t.spec.Acts():
		return reconcile.Result{}, r.clearStatus(ctx, t)
	case t.spec.Paused:
		return reconcile.Result{}, r.writePaused(ctx, t)
	case !t.isReady():
		return reconcile.Result{}, nil // when it becomes ready, its status changes, which causes another request
	}
	t.origin = r.originOf(t)
	namespaces, err := r.enabledNamespaces(ctx, t)
	if err != nil {
		return r.writeCannotPlan(ctx, t, err)
	}
	if t.hasStopped() {
		if wait, err := r.continueUndo(ctx, t, namespaces); err != nil || wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, err
		}
		if namespaces, err = r.keepUnaffected(ctx, t, namespaces); err != nil || len(namespaces) == 0 {
			return reconcile.Result{RequeueAfter: retryAfter}, err
		}
	} else {
		t.status.Failed = nil // of an earlier content
	}
	from := planOrigin(t.origin, namespaces)
	now := r.now()
	p := r.lastPlan(request.NamespacedName)
	if p.from != from {
		p = planned{from: from, known: now, undo: p.undo}
		r.notePlan(request.NamespacedName, p)
	}
	if rest := settleTime - now.Sub(p.known); rest > 0 { // until all replicas use a canary, or no longer use it
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	outdated := r.countOutdated(t, namespaces)
	if p.stillHolds(outdated, now) && !t.hasStopped() {
		return reconcile.Result{RequeueAfter: recheckEvery}, nil
	}
	wait, err := r.updatePods(ctx, t, namespaces)
	if err != nil {
		return r.writeCannotPlan(ctx, t, err)
	}
	if wait == 0 {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	if wait == retryAfter && p.wait < replanEvery { // other clients replace pods, perhaps without end, so the pauses become longer
		wait = min(max(wait, 2*p.wait), replanEvery-retryAfter)
	}
	p.outdated, p.at, p.wait = outdated, r.now(), wait
	r.notePlan(request.NamespacedName, p)
	return reconcile.Result{RequeueAfter: min(wait, recheckEvery)}, nil
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
	targets, err := r.plan(ctx, []string{failed.Namespace}, t.rolloutBounds())
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
