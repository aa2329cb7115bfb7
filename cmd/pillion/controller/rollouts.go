// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Times of rollouts.
const (
	// lookAgain is how often to find out whether namespaces or pods make a new plan necessary.
	lookAgain = 15 * time.Second
	// planAgain is how often to plan if something that the controller does not follow may have changed.
	planAgain = 10 * time.Minute
	// waitAgain is how long to wait after a plan that failed, or for workloads that replace pods by themselves.
	waitAgain = time.Minute
	// turn is how long a rollout lasts until it is planned again. It ends when no pod is between its change and its proof.
	turn = 5 * time.Minute
	// steady is how long the containers of a failed pod must run until it counts as fixed.
	steady = time.Minute
)

// mostAtOnce is how many templates are updated at a time. One that waits for its pods occupies only a goroutine.
const mostAtOnce = 500

// rollouts updates running pods to their templates. Several templates are updated at the same time, so that none waits for
// another; those that change the same pods share their limits, see [rollout.Claim]. All state is in the cluster: a plan finds
// what an earlier process has not finished, and the condition Degraded keeps a rollout stopped.
type rollouts struct {
	read  reader
	apply func(ctx context.Context, status *unstructured.Unstructured) error
	event func(template *unstructured.Unstructured, kind, reason, message string)
	// namespaces lists those in which pods may be updated.
	namespaces func(ctx context.Context) ([]string, error)
	plan       func(ctx context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error)
	cluster    executor.Cluster
	run        func(ctx context.Context, r *executor.Rollout, all []*rollout.Workload) error
	// count counts the pods of a template in a namespace.
	count func(template types.NamespacedName, revision string, replacedBy ...string) v1alpha1.PodCounts
	// counted is called if the namespaces have changed, so that the pods there count.
	counted func(template types.NamespacedName)
	limits  executor.Limits
	now     func() time.Time
	log     *slog.Logger

	enabled atomic.Pointer[[]string] // the namespaces
	listing sync.Mutex
	listed  time.Time // when

	mu      sync.Mutex // guards the maps
	planned map[types.NamespacedName]planned
	wrote   map[types.NamespacedName]wrote
}

// lastPlan returns what the last plan of a template follows from.
func (r *rollouts) lastPlan(name types.NamespacedName) planned {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.planned[name]
}

func (r *rollouts) notePlan(name types.NamespacedName, p planned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planned[name] = p
}

// forgetTemplate forgets a template that no longer exists.
func (r *rollouts) forgetTemplate(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.planned, name)
	delete(r.wrote, name)
}

// wrote is what was last written into the status of a template. What is read may be older for a moment.
type wrote struct {
	uid    types.UID
	at     time.Time
	status v1alpha1.Status
}

// planned is what the plans of a template follow from, and the last one of these plans.
type planned struct {
	from     string
	known    time.Time // since when the controller knows that
	outdated int64
	at       time.Time
	wait     time.Duration // until the next one
	undo     time.Time     // when to try again to undo the rollout
}

// stillHolds reports whether another plan would hardly differ. If only the number of outdated pods has changed, which a
// rollout of an app does all the time, a plan has to wait.
func (p planned) stillHolds(outdated int64, now time.Time) bool {
	since := now.Sub(p.at)
	return since < p.wait && (p.outdated == outdated || since < waitAgain)
}

// subject is a template while it is processed.
type subject struct {
	entry  *kube.Entry
	object *unstructured.Unstructured // without content
	spec   v1alpha1.Rollout
	status v1alpha1.Status
	origin string // see [rollouts.originOf]
	// written is status.Failed as the API server has it.
	written []v1alpha1.FailedRollout
}

// getSubject returns a template, or nil if there is none.
func (r *rollouts) getSubject(name types.NamespacedName) *subject {
	e, _ := r.read.Get(name)
	if e == nil {
		return nil
	}
	t := &subject{entry: e, object: objectOf(e)}
	if e.Rollout != nil {
		t.spec = *e.Rollout
	}
	if e.Status != nil {
		t.status = *e.Status
		t.status.Conditions = slices.Clone(t.status.Conditions)
		t.written = t.status.Failed
	}
	return t
}

// isReady reports whether new pods get the present content.
func (t *subject) isReady() bool {
	c := readyCondition(&t.status)
	return c.Status == metav1.ConditionTrue && c.ObservedGeneration == t.object.GetGeneration()
}

// hasStopped reports whether the present content has failed.
func (t *subject) hasStopped() bool {
	c := meta.FindStatusCondition(t.status.Conditions, v1alpha1.ConditionDegraded)
	return c != nil && c.Status == metav1.ConditionTrue && (c.Reason == v1alpha1.ReasonFailed || c.Reason == v1alpha1.ReasonUndone) && c.ObservedGeneration == t.object.GetGeneration()
}

// undoesFailure reports whether a failure undoes the rollout.
func (t *subject) undoesFailure() bool { return t.spec.OnFailure == v1alpha1.UndoOnFailure }

// originOf describes a template, and those that replace it or that it replaces. If one of these changes, a plan does not
// hold any more.
func (r *rollouts) originOf(t *subject) string {
	var all []string
	for _, e := range append(replacementsOf(r.read, t.entry), t.entry) {
		all = append(all, fmt.Sprint(e.Name, e.UID, e.Generation))
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

func (t *subject) rolloutBounds() cluster.Bounds {
	return cluster.Bounds{Object: t.entry.ID(), InPlace: t.spec.Strategy == v1alpha1.InPlace}
}

// enabledNamespaces returns the namespaces in which pods of a template may be updated.
func (r *rollouts) enabledNamespaces(ctx context.Context, t *subject) ([]string, error) {
	r.listing.Lock()
	defer r.listing.Unlock()
	if now := r.now(); now.Sub(r.listed) > lookAgain/2 {
		all, err := r.namespaces(ctx)
		if err != nil {
			return nil, err
		}
		slices.Sort(all)
		before := r.enabled.Swap(&all)
		if r.listed = now; before == nil || !slices.Equal(*before, all) {
			r.counted(client.ObjectKeyFromObject(t.object))
		}
	}
	return r.namespacesOf(t.object), nil
}

// namespacesOf returns those of the namespaces that a template is for.
func (r *rollouts) namespacesOf(template *unstructured.Unstructured) []string {
	all := r.enabled.Load()
	switch namespace := template.GetNamespace(); {
	case all == nil:
		return nil
	case namespace == "":
		return *all
	case slices.Contains(*all, namespace):
		return []string{namespace}
	}
	return nil
}
