// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
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
	// recheckEvery is how often to find out whether namespaces or pods make a new plan necessary.
	recheckEvery = 15 * time.Second
	// replanEvery is how often to plan although nothing has changed that the controller follows.
	replanEvery = 10 * time.Minute
	// retryAfter is how long to wait after a plan that failed, or for workloads that replace pods by themselves.
	retryAfter = time.Minute
	// turn is how long a rollout runs until it is planned again. It then begins no further change, and ends when all changed pods are
	// proved.
	turn = 5 * time.Minute
	// steady is how long the containers of a failed pod must run until it counts as fixed.
	steady = time.Minute
)

// mostAtOnce is how many templates are updated at a time. One that waits for its pods occupies only a goroutine.
const mostAtOnce = 500

// rollouts updates running pods to the current templates. The rollouts of several templates run at the same time, so that none waits
// for another. If they change the same pods, they share the limits, see [rollout.Claim]. All state is in the cluster: a plan finds
// what an earlier process has not completed, and the condition Degraded keeps a rollout stopped.
type rollouts struct {
	read  reader
	apply func(ctx context.Context, status *unstructured.Unstructured) error
	event func(template *unstructured.Unstructured, kind, reason, message string)
	// namespaces lists the namespaces in which pods may be updated.
	namespaces func(ctx context.Context) ([]string, error)
	plan       func(ctx context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error)
	cluster    executor.Cluster
	run        func(ctx context.Context, r *executor.Rollout, all []*rollout.Workload) error
	// count counts the pods of a template in a namespace.
	count func(template types.NamespacedName, revision string, replacedBy ...string) v1alpha1.PodCounts
	// counted is called if the namespaces have changed, because the status counts the pods in these namespaces.
	counted func(template types.NamespacedName)
	limits  executor.Limits
	now     func() time.Time
	log     *slog.Logger

	enabled atomic.Pointer[[]string] // the namespaces in which pods may be updated; nil: not listed yet
	listing sync.Mutex               // guards listed
	listed  time.Time                // when the namespaces were listed

	mu      sync.Mutex // guards the maps
	planned map[types.NamespacedName]planned
	wrote   map[types.NamespacedName]wrote
}

// lastPlan returns what is remembered about the last plan of a template, or a zero value.
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

// planned is what is remembered about the last plan of a template.
type planned struct {
	from     string        // what the plan was made from, see planOrigin
	known    time.Time     // since when the controller knows from
	outdated int64         // the number of outdated pods at that time
	at       time.Time     // when it was made
	wait     time.Duration // until the next plan
	retry    time.Time     // when to plan again after a plan that failed
	other    time.Time     // since when the API server has another content of the template than the controller, see [cluster.ErrOtherContent]
	undo     time.Time     // when to try again to undo the rollout
}

// stillHolds reports whether a new plan is not necessary yet. If only the number of outdated pods has changed, a new plan has to wait
// for a while, because a deployment of an app changes that number all the time.
func (p planned) stillHolds(outdated int64, now time.Time) bool {
	since := now.Sub(p.at)
	return since < p.wait && (p.outdated == outdated || since < retryAfter)
}

// subject is a template while a request about it is processed.
type subject struct {
	entry  *kube.Entry
	object *unstructured.Unstructured // without content
	spec   v1alpha1.Rollout
	status v1alpha1.Status
	origin string // see [rollouts.originOf]
	// written is what was last written about the rollout, see wrote. differs is whether something else was read, and unsaved is why the
	// API server does not have it.
	written v1alpha1.Status
	differs bool
	unsaved error
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
	}
	t.written = rolloutStatus(&t.status)
	r.mu.Lock()
	w, ok := r.wrote[name]
	r.mu.Unlock()
	if !ok || w.uid != e.UID {
		return t
	}
	t.unsaved, t.differs = w.err, !sameReport(&t.written, &w.status)
	if t.differs && r.now().Sub(w.at) > staleFor {
		t.unsaved = errors.New("another client has changed it")
	}
	t.setReport(w.status)
	return t
}

// setReport sets what is reported about the rollout.
func (t *subject) setReport(report v1alpha1.Status) {
	t.written, t.status.Failed = report, report.Failed
	others := slices.DeleteFunc(slices.Clone(t.status.Conditions), isOfRollout)
	t.status.Conditions = append(others, report.Conditions...)
}

// isReady reports whether new pods get the present content.
func (t *subject) isReady() bool {
	c := readyCondition(&t.status)
	return c.Status == metav1.ConditionTrue && c.ObservedGeneration == t.object.GetGeneration()
}

// hasStopped reports whether the present content has failed. If a right was missing as well, the condition has that reason.
func (t *subject) hasStopped() bool {
	c := meta.FindStatusCondition(t.status.Conditions, v1alpha1.ConditionDegraded)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == t.object.GetGeneration() &&
		(c.Reason == v1alpha1.ReasonFailed || c.Reason == v1alpha1.ReasonUndone || len(t.status.Failed) > 0)
}

// lacksPlan reports whether the condition Progressing says that there is no plan.
func (t *subject) lacksPlan() bool {
	c := meta.FindStatusCondition(t.status.Conditions, v1alpha1.ConditionProgressing)
	return c != nil && c.Reason == v1alpha1.ReasonCannotPlan
}

// undoesFailure reports whether a failure undoes the rollout.
func (t *subject) undoesFailure() bool { return t.spec.OnFailure == v1alpha1.UndoOnFailure }

// originOf returns a string that changes if the template changes, or one that replaces it or that it replaces. Then a plan does not
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
	return cluster.Bounds{Object: t.entry.ID(), Revision: t.status.Revision, InPlace: t.spec.Strategy == v1alpha1.InPlace}
}

// enabledNamespaces returns the namespaces in which pods of a template may be updated.
func (r *rollouts) enabledNamespaces(ctx context.Context, t *subject) ([]string, error) {
	r.listing.Lock()
	defer r.listing.Unlock()
	if now := r.now(); now.Sub(r.listed) > recheckEvery/2 {
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

// namespacesOf returns the namespaces in which pods of a template may be updated, as they were last listed.
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
