// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// run updates one workload. Which pods may change when is decided by [rollout.Decide], from what the watch remembers.
type run struct {
	*Rollout

	w          *rollout.Workload
	gate       *sync.Mutex // workloads of a namespace may share a budget, so they decide one after another
	watch      *rollout.Watch
	begun      bool
	left       []string // what is half done, see noteIncomplete
	reportWait func(of, what string)
	did        map[string]string // by UID: what has changed in a pod
	// proving is set while one pod is evicted before a restart.
	proving bool
	// deniedSince is since when budgets deny evictions, and checked are the UIDs of new pods that were planned.
	deniedSince time.Time
	checked     map[string]bool
	held        map[string][]string // by place: the budgets that count the pod
	accepted    map[string]bool     // resizes that the API server accepts, by [rollout.Pod.ResizeSummary]
	changes     <-chan struct{}     // of pods, while a part of the workload is updated, or nil
	seen        *Sight              // the last one, without its pods, or nil
	looked      time.Duration       // how long the last look took
	claims      map[string]claimed  // by UID: pods with a claim that are not changed yet
}

// claimed is a pod with a claim of this rollout that is not changed yet.
type claimed struct {
	claim  rollout.Claim
	before string                     // what was in place of the claim
	object *unstructured.Unstructured // the pod with the claim, or nil if that is unknown
}

func (r *Rollout) newRun(w *rollout.Workload, gate *sync.Mutex) *run {
	rules := w.Limits.Rules(r.Limits.Limits, r.Limits.Timeout)
	rules.Undo = r.Limits.Undo
	s := &run{
		Rollout: r, w: w, gate: gate, watch: rollout.NewWatch(w.Way, rules, rollout.NewClaim(r.Template, r.holder, rules.Proof, time.Time{})),
		did: map[string]string{}, held: map[string][]string{}, checked: map[string]bool{}, claims: map[string]claimed{}, accepted: map[string]bool{},
	}
	s.reportWait = r.newWaitReporter(Event{Namespace: w.Namespace, Workload: w.Title()})
	if w.Way == rollout.ChangeInPlace || w.Way == rollout.Evict {
		s.watch.Expect(w.Todo())
	}
	return s
}

// slowly is how many polls pass between two inspections of pods that only have to stay ready.
const slowly = 5

// pollsToWait reports what the rollout waits for, and returns after how many polls to look again.
func (s *run) pollsToWait(d rollout.Decision, open []rollout.Member) (polls int) {
	bakes, settles := "", false
	for _, m := range open {
		settles = settles || time.Since(m.Since) < 2*slowly*s.Limits.Poll
		if m.Stage == rollout.Changing {
			s.reportWait(m.Name, m.Waits)
			return 1
		}
		bakes = m.Name
	}
	if d.Waits != "" {
		s.reportWait(d.Of, d.Waits)
	} else if bakes != "" {
		s.reportWait(bakes, fmt.Sprintf("it to be ready for %s", s.watch.Rules.Proof))
	}
	if len(d.Change) > 0 || settles || s.watch.Rules.Proof < slowly*s.Limits.Poll {
		return 1
	}
	return slowly
}

// awaitChange waits until a pod has changed, or for so many polls. Changes come in groups, and reading many pods takes long, so
// it waits for some time in any case.
func (s *run) awaitChange(ctx context.Context, polls int) error {
	if s.changes == nil && s.seen != nil {
		s.changes = s.Cluster.Watch(ctx, s.w, s.seen)
	}
	poll := s.Limits.Poll
	end, pause := time.NewTimer(time.Duration(polls)*poll), time.NewTimer(min(poll, max(poll/10, 4*s.looked)))
	defer end.Stop()
	defer pause.Stop()
	changes, paused := s.changes, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-changes:
			paused = pause.C
		case <-paused:
			return nil
		}
	}
}

// inspectPods inspects the pods of the workload. Those that are gone are done.
func (s *run) inspectPods(ctx context.Context) (*Sight, error) { return s.inspectAgain(ctx, nil) }

// inspectAgain inspects the pods of the workload, which was seen a moment ago, or nil.
func (s *run) inspectAgain(ctx context.Context, before *Sight) (*Sight, error) {
	began := time.Now()
	sight, err := s.Cluster.Look(ctx, s.w, before)
	if err != nil {
		return nil, err
	}
	s.seen, s.looked = &Sight{of: sight.of, version: sight.version}, time.Since(began)
	gone, taken := s.watch.See(sight.Pods, time.Now())
	for _, m := range gone {
		s.releaseBudgets(m.Place)
		s.reportEvent(Event{Type: "gone", Namespace: s.w.Namespace, Workload: s.w.Title(), Pod: m.Name, Message: "it no longer exists, or is being deleted"})
	}
	for _, m := range taken {
		s.reportEvent(Event{Type: "skipped", Namespace: s.w.Namespace, Workload: s.w.Title(), Pod: m.Name, Message: "another rollout changes it now"})
	}
	for _, m := range s.watch.Open() {
		pod := s.watch.Last(m.UID)
		if m.Ended == "" || pod == nil {
			continue
		}
		if why := s.Cluster.Failure(ctx, pod, m.Ended, rollout.Changed(&pod.ObjectMeta)); why != "" {
			s.watch.Fail(m.UID, fmt.Sprintf("the container %s does not start: %s", m.Ended, why))
		}
	}
	return sight, s.checkNew()
}

// decideChanges decides which of the pods may change now. If they have the claim of the rollout, it counts their disruptions
// before another workload decides.
func (s *run) decideChanges(ctx context.Context, next []string, desired int, claimed bool) (d rollout.Decision, err error) {
	s.gate.Lock()
	defer s.gate.Unlock()
	var limits []rollout.Limit
	var budgets []Budget
	if len(next) > 0 {
		if budgets, err = s.Cluster.Budgets(ctx, s.w.Namespace); err != nil {
			return d, err
		}
		s.holdUnproved(budgets)
		for _, b := range budgets {
			others := 0
			if claimed {
				if others, err = s.countOthers(ctx, b, next); err != nil {
					return d, err
				}
			}
			limits = append(limits, rollout.Limit{Name: b.Name, Selector: b.Selector, Allowed: b.Allowed - s.inFlight(b.Name) - others})
		}
	}
	d = s.watch.Decide(rollout.Candidates{UIDs: next, Claimed: claimed, Desired: desired, Budgets: limits, Restarts: s.restartsContainers}, time.Now())
	if !claimed {
		return d, nil
	}
	for _, uid := range d.Change {
		pod := s.watch.Last(uid)
		if !rollout.IsReady(pod) || !s.restartsContainers(uid) {
			continue
		}
		s.holdBudgets(uid, pod, budgets)
	}
	return d, nil
}

// holdUnproved counts all pods that are not proved in their budgets, also those that another process has changed, and no
// others.
func (s *run) holdUnproved(budgets []Budget) {
	open := map[string]bool{}
	for _, m := range s.watch.Unproved() {
		open[m.Place] = true
		if pod := s.watch.Last(m.UID); pod != nil && len(s.held[m.Place]) == 0 {
			s.holdBudgets(m.Place, pod, budgets)
		}
	}
	for place := range s.held {
		if !open[place] {
			s.releaseBudgets(place)
		}
	}
}

// evictsPods reports whether pods are evicted now, and not changed in place.
func (s *run) evictsPods() bool { return s.w.Way == rollout.Evict || s.proving }

// restartsContainers reports whether the change of a pod restarts a container.
func (s *run) restartsContainers(uid string) bool {
	p := s.watch.Plan(uid)
	return s.evictsPods() || p != nil && p.Restarts()
}

// countOthers counts the ready pods of other workloads that a budget counts and that other rollouts have changed, or are about to.
func (s *run) countOthers(ctx context.Context, b Budget, next []string) (n int, err error) {
	selects := false
	for _, uid := range next {
		pod := s.watch.Last(uid)
		selects = selects || pod != nil && b.Selector.Matches(labels.Set(pod.Labels))
	}
	if !selects || b.Pods <= s.watch.CountSelected(b.Selector) {
		return 0, nil
	}
	pods, err := s.Cluster.Pods(ctx, s.w.Namespace, b.Selector.String())
	for i := range pods {
		claim := rollout.ClaimOf(pods[i].GetAnnotations())
		if claim.Holder == s.holder || !claim.IsRecent(s.Limits.Timeout, time.Now()) || s.watch.Last(string(pods[i].GetUID())) != nil {
			continue
		}
		pod, err := asPod(&pods[i])
		if err != nil {
			return 0, err
		}
		if rollout.IsReady(pod) { // the budget counts the others
			n++
		}
	}
	return n, err
}

// A controller counts a disrupted pod in the budget a moment later, so that a pod of the rollout may count twice. That is
// on the safe side.

func (r *Rollout) inFlight(namespace, budget string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flight[namespace+"/"+budget]
}

func (s *run) inFlight(budget string) int { return s.Rollout.inFlight(s.w.Namespace, budget) }

func (s *run) holdBudgets(place string, pod *corev1.Pod, budgets []Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range budgets {
		if b.Selector.Matches(labels.Set(pod.Labels)) {
			s.flight[s.w.Namespace+"/"+b.Name]++
			s.held[place] = append(s.held[place], b.Name)
		}
	}
}

func (s *run) releaseBudgets(place string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, budget := range s.held[place] {
		s.flight[s.w.Namespace+"/"+budget]--
	}
	delete(s.held, place)
}

// stopError returns the error about what stops the rollout of the workload.
func (s *run) stopError(ctx context.Context, stop *rollout.Stop) error {
	why := stop.Why
	if p := s.watch.Plan(stop.UID); p != nil && p.UID != stop.UID {
		why = fmt.Sprintf("it replaces %s, which was evicted: %s", p.Name, why)
	}
	if pod := s.watch.Last(stop.UID); pod != nil && stop.Fell {
		if symptom := s.Cluster.Symptom(ctx, pod, rollout.Troubled(pod)); symptom != "" {
			why += ": " + symptom
		}
	}
	err := aboutPod(s.w.Namespace, stop.Pod, errors.New(why))
	err.blocked = stop.Blocked
	return err
}

// failIncomplete notes what is half done, and returns the error.
func (s *run) failIncomplete(err error) error {
	s.noteIncompletePods()
	return err
}

// noteIncompletePods notes the pods that have the change and are not proved.
func (s *run) noteIncompletePods() {
	for _, what := range s.incompletePods() {
		s.noteIncomplete(what)
	}
}

// noteIncomplete notes that something is half done.
func (s *run) noteIncomplete(what string) {
	s.mu.Lock()
	s.left = append(s.left, what)
	s.mu.Unlock()
	s.Rollout.noteIncomplete(what)
}

// incompletePods returns the pods that have the change and are not proved.
func (s *run) incompletePods() (all []string) {
	for _, m := range s.watch.Open() {
		if s.evictsPods() {
			all = append(all, fmt.Sprintf("%s in the namespace %s (a pod was evicted, and its replacement %s is not ready)", s.w.Title(), s.w.Namespace, m.Name))
			continue
		}
		all = append(all, fmt.Sprintf("pod %s in the namespace %s (changed, not yet recorded)", m.Name, s.w.Namespace))
	}
	return all
}

// checkNew checks that new pods that take the place of evicted ones are current, so that they are not evicted again.
func (s *run) checkNew() error {
	for _, m := range s.watch.Open() {
		pod, p := s.watch.Last(m.UID), s.watch.Plan(m.UID)
		if pod == nil || p == nil || p.UID == m.UID || s.checked[m.UID] {
			continue
		}
		s.checked[m.UID] = true
		old, err := s.notCurrent(s.w, []*corev1.Pod{pod})
		if err != nil {
			return err
		}
		if old != nil {
			s.watch.Fail(m.UID, fmt.Sprintf("it is %s; maybe not all replicas of Pillion use the templates yet", old.State))
		}
	}
	return nil
}

// notCurrent returns one of the pods that would have to change again, or nil.
func (r *Rollout) notCurrent(w *rollout.Workload, pods []*corev1.Pod) (*rollout.Pod, error) {
	for _, pod := range pods {
		text, err := json.Marshal(pod)
		if err != nil {
			return nil, err
		}
		now, err := r.Plan(w.Namespace, text)
		if err != nil || now.Action == rollout.Patch || now.Action == rollout.Replace {
			return now, err
		}
	}
	return nil, nil
}
