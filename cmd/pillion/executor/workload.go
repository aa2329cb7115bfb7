// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// workloadRun updates one workload. The watch remembers what was seen of its pods, and decides which of them may change when.
type workloadRun struct {
	*Rollout

	w             *rollout.Workload
	gate          *sync.Mutex // workloads of a namespace may share a budget, so they decide one after another
	watch         *rollout.Watch
	begun         bool
	ownIncomplete []string // what was begun in this workload and is not complete
	reportWait    func(of, what string)
	changedFields map[string]string // by UID: what has changed in a pod
	// proving is set while one pod is evicted before a restart.
	proving bool
	// deniedSince is since when budgets deny evictions, and checked are the UIDs of new pods that were planned.
	deniedSince time.Time
	checked     map[string]bool
	held        map[string][]string    // by place of a pod (see [rollout.Member]): the budgets in which it counts as disrupted
	reverting   []string               // the places of pods that wait to go back, and are held
	accepted    map[string]bool        // resizes that the API server accepts, by [rollout.Pod.ResizeSummary]
	changes     <-chan struct{}        // receives changes of pods while a part of the workload is updated, or nil
	seen        *Sight                 // of the last inspection, or nil
	whole       map[string]*corev1.Pod // by UID: the pods of the last inspection that may have to be planned, until the rollout waits
	inspectTook time.Duration          // how long the last inspection took
	claims      map[string]claimed     // by UID: pods with a claim that are not changed yet
}

// claimed is a pod with a claim of this rollout that is not changed yet.
type claimed struct {
	claim  rollout.Claim
	before string                     // the annotation's value before the claim, or ""
	object *unstructured.Unstructured // the pod with the claim, or nil if that is unknown
}

func (r *Rollout) newRun(w *rollout.Workload, gate *sync.Mutex) *workloadRun {
	rules := w.Limits.Rules(r.Limits.Limits, r.Limits.Timeout)
	rules.Undo = r.Limits.Undo
	s := &workloadRun{
		Rollout: r, w: w, gate: gate, watch: rollout.NewWatch(w.Way, rules, rollout.NewClaim(r.Template, r.holder, rules.Proof, time.Time{})),
		changedFields: map[string]string{}, held: map[string][]string{}, checked: map[string]bool{}, claims: map[string]claimed{}, accepted: map[string]bool{},
	}
	s.reportWait = r.newWaitReporter(Event{Namespace: w.Namespace, Workload: w.Title()})
	if w.Way == rollout.ChangeInPlace || w.Way == rollout.Evict {
		s.watch.Expect(w.Todo())
	}
	return s
}

// slowPolls is how many polls pass between two inspections of pods that only have to stay ready.
const slowPolls = 5

// pollsToWait reports what the rollout waits for, and returns after how many polls to inspect the pods again.
func (s *workloadRun) pollsToWait(d rollout.Decision, open []rollout.Member) (polls int) {
	bakes, settles := "", false
	for _, m := range open {
		settles = settles || time.Since(m.Since) < 2*slowPolls*s.Limits.Poll
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
	if len(d.Change) > 0 || settles || s.watch.Rules.Proof < slowPolls*s.Limits.Poll {
		return 1
	}
	return slowPolls
}

// awaitChange waits until a pod has changed, or for a number of polls. Changes come in groups, and reading many pods takes long. So it
// waits at least for a part of a poll, in proportion to the time that the last inspection took.
func (s *workloadRun) awaitChange(ctx context.Context, polls int) error {
	if s.changes == nil && s.seen != nil {
		s.changes = s.Cluster.Watch(ctx, s.w, s.seen)
	}
	poll := s.Limits.Poll
	end, pause := time.NewTimer(time.Duration(polls)*poll), time.NewTimer(min(poll, max(poll/10, 4*s.inspectTook)))
	defer end.Stop()
	defer pause.Stop()
	s.whole = nil
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

// inspectPods reads the pods of the workload, and updates the watch. A pod that is gone counts as done.
func (s *workloadRun) inspectPods(ctx context.Context) (*Sight, error) {
	return s.inspectAgain(ctx, nil)
}

// inspectAgain is inspectPods. Before is what was seen of the workload a moment ago, or nil.
func (s *workloadRun) inspectAgain(ctx context.Context, before *Sight) (*Sight, error) {
	began := time.Now()
	if before == nil {
		s.whole = map[string]*corev1.Pod{}
	}
	var pods []*corev1.Pod
	sight, err := s.Cluster.InspectWorkload(ctx, s.w, before, func(pod *corev1.Pod) {
		if uid := string(pod.UID); s.whole[uid] != nil || s.watch.MayPlan(uid) { // a pod that is proved since is recorded later
			s.whole[uid] = pod
		}
		pods = append(pods, rollout.Trim(pod))
	})
	if err != nil {
		return nil, err
	}
	s.seen, s.inspectTook = sight, time.Since(began)
	gone, taken := s.watch.See(pods, time.Now())
	if sight.Desired >= 0 {
		gone = append(gone, s.watch.DropEvicted(sight.Desired)...)
	}
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
	return sight, s.checkNew(ctx)
}

// decideChanges decides which of the pods in next (UIDs) may change now. Desired is the number of pods that the workload should have,
// or -1. Claimed reports whether this rollout has claimed the pods, so that the decision counts: then it holds the budgets of the pods
// that change, before another workload of the namespace decides.
func (s *workloadRun) decideChanges(ctx context.Context, next []string, desired int, claimed bool) (d rollout.Decision, err error) {
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
			// The decision itself counts the workload's own pods that wait to go back.
			allowed := b.Allowed - (s.countDisruptions(b.Name) - s.countReverting(b.Name)) - others
			limits = append(limits, rollout.Limit{Name: b.Name, Selector: b.Selector, Allowed: allowed})
		}
	}
	d = s.watch.Decide(rollout.Candidates{UIDs: next, Claimed: claimed, Desired: desired, Budgets: limits, Restarts: s.restartsContainers}, time.Now())
	if !claimed {
		return d, nil
	}
	for _, uid := range d.Change {
		// A pod that is not ready counts, too: it may become ready before it changes.
		if s.restartsContainers(uid) {
			s.releaseBudgets(uid)
			s.holdBudgets(uid, s.watch.Last(uid), budgets)
		}
	}
	return d, nil
}

// holdUnproved makes exactly the pods with a change that is not proved count as disrupted in their budgets, also pods that another
// process has changed and pods that wait to go back. It finds these budgets anew each time, because they come, go and change while a
// pod is not proved.
func (s *workloadRun) holdUnproved(budgets []Budget) {
	reverting := s.watch.Reverting(time.Now())
	s.reverting = s.reverting[:0]
	for i := range reverting {
		s.reverting = append(s.reverting, reverting[i].Place)
	}
	open := map[string]bool{}
	for _, m := range slices.Concat(s.watch.Unproved(), reverting) {
		open[m.Place] = true
		if pod := s.watch.Last(m.UID); pod != nil { // there is none while an evicted pod is not replaced
			s.releaseBudgets(m.Place)
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
func (s *workloadRun) evictsPods() bool { return s.w.Way == rollout.Evict || s.proving }

// restartsContainers reports whether the change of a pod restarts a container.
func (s *workloadRun) restartsContainers(uid string) bool {
	p := s.watch.Plan(uid)
	return s.evictsPods() || p != nil && p.Restarts()
}

// countOthers counts the ready pods of other workloads that a budget counts and that other rollouts have claimed. These pods will
// become unready, and the budget does not know that yet. Next has the UIDs of the pods that this workload would change.
func (s *workloadRun) countOthers(ctx context.Context, b Budget, next []string) (n int, err error) {
	selects := false
	for _, uid := range next {
		pod := s.watch.Last(uid)
		selects = selects || pod != nil && b.Selector.Matches(labels.Set(pod.Labels))
	}
	if !selects || b.Pods <= s.watch.CountSelected(b.Selector) {
		return 0, nil
	}
	_, err = s.Cluster.EachPod(ctx, s.w.Namespace, metav1.ListOptions{LabelSelector: b.Selector.String()}, func(pod *corev1.Pod) error {
		claim := rollout.ClaimOf(pod.Annotations)
		other := claim.Holder != s.holder && claim.IsRecent(s.Limits.Timeout, time.Now()) && s.watch.Last(string(pod.UID)) == nil
		if other && rollout.IsReady(pod) { // the budget counts the others
			n++
		}
		return nil
	})
	return n, err
}

// countDisruptions returns how many pods this rollout has disrupted in a budget. The controller of budgets counts a disrupted pod, too,
// a moment later. So a pod may count twice, which is on the safe side.
func (r *Rollout) countDisruptions(namespace, budget string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.disruptions[namespace+"/"+budget]
}

func (s *workloadRun) countDisruptions(budget string) int {
	return s.Rollout.countDisruptions(s.w.Namespace, budget)
}

// countReverting returns how many pods of the workload that wait to go back count as disrupted in a budget.
func (s *workloadRun) countReverting(budget string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, place := range s.reverting {
		if slices.Contains(s.held[place], budget) {
			n++
		}
	}
	return n
}

// holdBudgets makes a pod count as disrupted in the budgets that select it.
func (s *workloadRun) holdBudgets(place string, pod *corev1.Pod, budgets []Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range budgets {
		if b.Selector.Matches(labels.Set(pod.Labels)) {
			s.disruptions[s.w.Namespace+"/"+b.Name]++
			s.held[place] = append(s.held[place], b.Name)
		}
	}
}

// releaseBudgets is the inverse of holdBudgets.
func (s *workloadRun) releaseBudgets(place string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, budget := range s.held[place] {
		s.disruptions[s.w.Namespace+"/"+budget]--
	}
	delete(s.held, place)
}

// stopError returns the error about what stops the rollout of the workload.
func (s *workloadRun) stopError(ctx context.Context, stop *rollout.Stop) error {
	why := stop.Why
	if p := s.watch.Plan(stop.UID); p != nil && p.UID != stop.UID {
		why = fmt.Sprintf("it replaces %s, which was evicted: %s", p.Name, why)
	}
	if pod := s.watch.Last(stop.UID); pod != nil && stop.Fell {
		if symptom := s.Cluster.Symptom(ctx, pod, rollout.Troubled(pod)); symptom != "" {
			why += ": " + symptom
		}
	}
	err := newPodError(s.w.Namespace, stop.Pod, errors.New(why))
	err.blocked = stop.Blocked
	return err
}

// failIncomplete notes which pods are not complete, and returns the error.
func (s *workloadRun) failIncomplete(err error) error {
	s.noteIncompletePods()
	return err
}

// noteIncompletePods notes the pods that were changed and are not proved.
func (s *workloadRun) noteIncompletePods() {
	for _, what := range s.incompletePods() {
		s.noteIncomplete(what)
	}
}

// noteIncomplete notes something of this workload that was begun and is not complete.
func (s *workloadRun) noteIncomplete(what string) {
	s.mu.Lock()
	s.ownIncomplete = append(s.ownIncomplete, what)
	s.mu.Unlock()
	s.Rollout.noteIncomplete(what)
}

// incompletePods describes the pods that were changed and are not proved, each in words.
func (s *workloadRun) incompletePods() (all []string) {
	for _, m := range s.watch.Open() {
		if s.evictsPods() {
			all = append(all, fmt.Sprintf("%s in the namespace %s (a pod was evicted, and its replacement %s is not ready)", s.w.Title(), s.w.Namespace, m.Name))
			continue
		}
		all = append(all, fmt.Sprintf("pod %s in the namespace %s (changed, not yet recorded)", m.Name, s.w.Namespace))
	}
	return all
}

// checkNew fails each new pod that takes the place of an evicted pod and is not current. Without this check, the new pod would be
// evicted again and again.
func (s *workloadRun) checkNew(ctx context.Context) error {
	for _, m := range s.watch.Open() {
		pod, p := s.watch.Last(m.UID), s.watch.Plan(m.UID)
		if pod == nil || p == nil || p.UID == m.UID || s.checked[m.UID] {
			continue
		}
		object, err := s.wholePod(ctx, pod)
		if apierrors.IsNotFound(err) {
			continue // the next inspection reports that the pod is gone
		}
		if err != nil {
			return err
		}
		s.checked[m.UID] = true
		now, _, err := s.planPod(object)
		if err != nil {
			return err
		}
		if !isCurrent(now) {
			s.watch.Fail(m.UID, fmt.Sprintf("it is %s; maybe not all replicas of Pillion use the templates yet", now.State))
		}
	}
	return nil
}

// isCurrent reports whether a new pod with this plan would not have to change again.
func isCurrent(p *rollout.Pod) bool { return p.Action != rollout.Patch && p.Action != rollout.Replace }

// wholePod returns a pod with all its fields as it was last seen, or reads it again if the last inspection has kept only a part of it.
// It returns an error of the type NotFound if there is another pod of that name now.
func (s *workloadRun) wholePod(ctx context.Context, pod *corev1.Pod) (*unstructured.Unstructured, error) {
	if whole := s.whole[string(pod.UID)]; whole != nil {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(whole)
		return &unstructured.Unstructured{Object: fields}, err
	}
	object, err := s.Cluster.Pod(ctx, pod.Namespace, pod.Name)
	if err == nil && object.GetUID() != pod.UID {
		err = apierrors.NewNotFound(podResource.GroupResource(), pod.Name)
	}
	return object, err
}

// planPod plans a pod again in its present state. It also returns the pod.
func (r *Rollout) planPod(object *unstructured.Unstructured) (*rollout.Pod, *corev1.Pod, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, nil, err
	}
	now, err := r.Plan(object.GetNamespace(), text)
	if err != nil {
		return nil, nil, err
	}
	pod, err := asPod(object)
	return now, pod, err
}

// forgetPods frees the memory of the pods until they are inspected again.
func (s *workloadRun) forgetPods() {
	s.watch.Rest()
	s.whole = nil
}
