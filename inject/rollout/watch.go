// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Watch remembers how the pods of a workload have been since a rollout first saw them. It measures times with the
// clock of the rollout, because the clocks of API servers and kubelets may differ. Only for what was before it first saw a pod, it has to
// use theirs, see clockSkew.
type Watch struct {
	Rules Rules
	// Claim is that of the rollout. Its time does not matter.
	Claim Claim

	replaces bool // all new pods are ours: some may take the place of pods that somebody else has deleted
	seen     bool // the pods were seen once
	pods     map[string]*watched
	evicted  []*watched // pods whose replacement does not exist yet
	idle     time.Time
}

// watched is a pod, and what a rollout remembers of it.
type watched struct {
	Member

	seen     bool
	waits    bool          // for its change, perhaps until another rollout has proved its own one
	claim    Claim         // of another rollout, as last seen
	holder   string        // of the claim with which the pod became ours, if another process has changed it
	pod      *corev1.Pod   // as last seen, or nil, see Rest
	before   *corev1.Pod   // before the change, or nil
	own      []string      // the containers that change
	wasReady bool          // it must be Ready to be well
	loose    bool          // no node runs it, so it cannot fall
	begun    time.Time     // since when it is changing
	unprobed time.Time     // since when it is well, but a startup probe may not have run, or the zero time
	slipped  time.Time     // when it became unready before it had settled, or the zero time
	lasted   time.Duration // how long it was ready before that
	well     time.Time     // since when it is ready with the change
	turned   time.Time     // when it became Ready, by the kubelet's clock
	starts   int32         // of its own containers
	plan     *Pod
}

// NewWatch returns a watch for a workload that a rollout with a claim updates in a way.
func NewWatch(way Way, rules Rules, claim Claim) *Watch {
	return &Watch{Rules: rules, Claim: claim, replaces: way == Restart || way == Await, pods: map[string]*watched{}}
}

// Expect adds pods that are to change. An earlier rollout may have changed them already, and not recorded that, because
// they were not proved.
func (w *Watch) Expect(all []*Pod) {
	for _, p := range all {
		if w.pods[p.UID] == nil {
			w.pods[p.UID] = &watched{Member: Member{Name: p.Name, UID: p.UID, Place: p.UID, Stage: Behind, Reverts: p.Reverts()}, waits: true, plan: p}
		}
	}
}

// settling is how long a pod may become ready and unready again after its change: its app may notice late that a sidecar
// has started again. It keeps its place meanwhile.
const settling = 10 * time.Second

// slip is how long such a pod may be unready.
const slip = 30 * time.Second

// minClaim is how long a pod with the claim of another rollout must be ready, at least, until this one may change it, if that rollout
// was killed. A pod is ready with its claim until it is changed, so without this time it would count as proved before that.
const minClaim = 30 * time.Second

// See takes in the present pods of the workload, which it holds: see [Trim]. It returns those of the rollout that are gone, and those that another rollout
// changes now.
func (w *Watch) See(pods []*corev1.Pod, now time.Time) (gone, taken []Member) {
	present := map[string]bool{}
	for _, pod := range pods {
		t := w.pods[string(pod.UID)]
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed && (t == nil || !t.isUnproved()) {
			continue
		}
		present[string(pod.UID)] = true
		if t == nil {
			t = w.addUnexpected(pod, now)
		}
		if t.seePod(pod, now, w.Rules, w.Claim) {
			taken = append(taken, t.Member)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if t := w.pods[uid]; !present[uid] {
			if t.waits || t.Ours && t.isUnproved() {
				gone = append(gone, t.Member)
			}
			delete(w.pods, uid)
		}
	}
	w.seen = true
	return gone, taken
}

// DropEvicted drops the evicted pods that nothing will replace, because the workload has as many pods as it should have: it was scaled
// down or deleted meanwhile. It returns them.
func (w *Watch) DropEvicted(desired int) (gone []Member) {
	for len(w.evicted) > max(0, desired-len(w.pods)) {
		last := len(w.evicted) - 1
		gone, w.evicted = append(gone, w.evicted[last].Member), w.evicted[:last]
	}
	return gone
}

// addUnexpected begins to watch a pod that is not expected.
func (w *Watch) addUnexpected(pod *corev1.Pod, now time.Time) *watched {
	t := &watched{Member: Member{Name: pod.Name, UID: string(pod.UID), Place: string(pod.UID), Stage: Settled, Since: now}, wasReady: true}
	w.pods[t.UID] = t
	// A rollout records what it has proved. Pods that it has not changed may be new.
	changed, recent := Changed(&pod.ObjectMeta), w.Rules.Proof+clockSkew
	young := w.Rules.Proof > 0 && changed.IsZero() && now.Sub(readySince(pod)) < recent
	// Nothing records that a pod which went back was proved, so that another process may have to wait for that.
	wentBack := w.Rules.Proof > 0 && w.Rules.Undo && now.Sub(changed) < recent
	switch {
	case w.seen && len(w.evicted) > 0: // it takes the place of an evicted one
		t.Stage, t.Ours, t.plan, t.Place, w.evicted = Changing, true, w.evicted[0].plan, w.evicted[0].Place, w.evicted[1:]
	case w.seen && w.replaces:
		t.Stage, t.Ours = Changing, true
	case w.seen, young, wentBack: // a new pod has the new revision
		t.Stage, t.Ours = Changing, w.replaces
	}
	return t
}

// readySince returns when a pod became ready, or, if it is not, when it was created.
func readySince(pod *corev1.Pod) time.Time {
	at := turnedReady(pod)
	if at.Before(pod.CreationTimestamp.Time) {
		at = pod.CreationTimestamp.Time
	}
	return at
}

// Begin notes that a pod is being changed in place. Before is the pod before that, which the watch holds: see [Trim].
func (w *Watch) Begin(p *Pod, before *corev1.Pod, now time.Time) {
	t := w.pods[p.UID]
	if t == nil {
		t = &watched{}
		w.pods[p.UID] = t
	}
	if t.Ours && t.before != nil { // a second step of the change
		before, now = t.before, t.Since
	}
	*t = watched{Member: Member{Name: p.Name, UID: p.UID, Place: p.UID, Stage: Changing, Since: now, Ready: t.Ready, Ours: true}, seen: true, pod: before, before: before, own: p.Own, wasReady: p.Ready, plan: p}
	if p.Unrecorded() {
		t.before, t.wasReady = nil, true
	}
}

// Evict notes that a pod is evicted, so that the next new one replaces it.
func (w *Watch) Evict(uid string, now time.Time) {
	if t := w.pods[uid]; t != nil {
		t.Stage, t.Since, t.Ours, t.Ready, t.Waits = Changing, now, true, false, "the pod that replaces it"
		w.evicted, w.replaces = append(w.evicted, t), true
		delete(w.pods, uid)
	}
}

// Waits reports whether a pod waits for its change.
func (w *Watch) Waits(uid string) bool {
	t := w.pods[uid]
	return t != nil && t.waits
}

// Claims reports whether a claim in a pod is the one with which the rollout changed it.
func (w *Watch) Claims(uid string, c Claim) bool {
	t := w.pods[uid]
	return c.Holder == w.Claim.Holder || t != nil && t.Ours && c.Holder == t.holder
}

// Ours reports whether the rollout has changed a pod, or has caused its creation.
func (w *Watch) Ours(uid string) bool {
	t := w.pods[uid]
	return t != nil && t.Ours
}

// Fail notes that a pod will never be ready with the change.
func (w *Watch) Fail(uid, why string) {
	if t := w.pods[uid]; t != nil && t.isUnproved() {
		t.Stage, t.Failed = Changing, why
	}
}

// Leave notes that a pod needs no change, or gets none.
func (w *Watch) Leave(uid string) {
	if t := w.pods[uid]; t != nil && t.waits {
		t.Stage, t.waits = Settled, false
	}
}

// MayPlan reports whether the rollout may have to plan a pod that is seen next: to record its change, or to check that a new pod is
// current.
func (w *Watch) MayPlan(uid string) bool {
	if t := w.pods[uid]; t != nil {
		return t.Ours && t.isUnproved() || t.waits && t.plan.Unrecorded()
	}
	return len(w.evicted) > 0
}

// Plan returns what a pod of the rollout needed. For a new pod, it is the one that it replaces.
func (w *Watch) Plan(uid string) *Pod {
	if t := w.pods[uid]; t != nil {
		return t.plan
	}
	return nil
}

// Open returns the pods of the rollout that have the change and are not proved.
func (w *Watch) Open() (all []Member) {
	for _, m := range w.sortedMembers() {
		if m.Ours && m.isUnproved() {
			all = append(all, m)
		}
	}
	return all
}

// Unproved returns all pods that have the change and are not proved, also those that another process has changed.
func (w *Watch) Unproved() []Member {
	return slices.DeleteFunc(w.sortedMembers(), func(m Member) bool { return !m.isUnproved() })
}

// Reverting returns all pods that wait to go back from a change that is not proved.
func (w *Watch) Reverting(now time.Time) []Member {
	return slices.DeleteFunc(w.sortedMembers(), func(m Member) bool { return !m.isReverting(w.Rules, now) })
}

// Bakes reports whether a pod of the rollout is ready, and may still be proved.
func (w *Watch) Bakes() bool {
	return slices.ContainsFunc(w.sortedMembers(), func(m Member) bool { return m.Ours && m.Stage == Baking })
}

// Rest frees memory until the pods are seen again.
func (w *Watch) Rest() {
	for _, t := range w.pods {
		t.pod, t.before = nil, nil
	}
}

// CountSelected returns how many of the pods that were last seen a selector matches.
func (w *Watch) CountSelected(by labels.Selector) (n int) {
	for _, t := range w.pods {
		if t.pod != nil && by.Matches(labels.Set(t.pod.Labels)) {
			n++
		}
	}
	return n
}

// Last returns a pod as it was last seen, or nil.
func (w *Watch) Last(uid string) *corev1.Pod {
	if t := w.pods[uid]; t != nil {
		return t.pod
	}
	return nil
}

// Slips reports whether a proved pod of the rollout is not ready, and may become ready again by itself. See [Watch.Fallen].
func (w *Watch) Slips() bool {
	for _, t := range w.pods {
		if t.Stage == Proved && !t.slipped.IsZero() {
			return true
		}
	}
	return false
}

// Fallen returns a pod of the rollout that was ready with the change, and is not any more, or nil.
func (w *Watch) Fallen() *Stop {
	for _, m := range w.sortedMembers() {
		if m.Ours && m.Stage == Fallen {
			return &Stop{Pod: m.Name, UID: m.UID, Why: m.Waits, Fell: true}
		}
	}
	return nil
}

// sortedMembers returns the pods in the order of their names.
func (w *Watch) sortedMembers() []Member {
	all := make([]Member, 0, len(w.pods)+len(w.evicted))
	for _, t := range w.evicted {
		all = append(all, t.Member)
	}
	for _, t := range w.pods {
		if t.seen {
			all = append(all, t.Member)
		}
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	return all
}

// Limit is how many disruptions a budget allows, besides those of pods that are not proved.
type Limit struct {
	Name     string
	Selector labels.Selector
	Allowed  int
}

// Candidates are pods that may change next.
type Candidates struct {
	UIDs    []string
	Claimed bool // they have the claim of the rollout, so that they may really change
	Desired int  // the number of pods that the workload should have, or -1 if that is unknown
	Budgets []Limit
	// Restarts reports whether the change of a pod restarts a container.
	Restarts func(uid string) bool
}

// Decide decides about the next pods, with [Decide].
func (w *Watch) Decide(c Candidates, now time.Time) Decision {
	v := &View{Members: w.sortedMembers(), Desired: c.Desired, Next: c.UIDs, Budgets: map[string]int{}, Idle: w.idle}
	for _, b := range c.Budgets {
		v.Budgets[b.Name] = b.Allowed
	}
	for i := range v.Members {
		m := &v.Members[i]
		if t := w.pods[m.UID]; m.Stage == Behind && t != nil {
			m.Restarts = c.Restarts(m.UID)
			for _, b := range c.Budgets {
				if b.Selector.Matches(labels.Set(t.pod.Labels)) {
					m.Budgets = append(m.Budgets, b.Name)
				}
			}
		}
	}
	d := Decide(v, w.Rules, now)
	for _, uid := range d.Proved {
		t := w.pods[uid]
		if t.Stage, t.Since, t.slipped = Proved, now, (time.Time{}); !t.Ours {
			t.noteSettled(now)
		}
	}
	switch {
	case c.Claimed && len(d.Change) > 0 || len(d.Proved) > 0 || slices.ContainsFunc(v.Members, func(m Member) bool {
		return m.Ours && m.isUnproved() || slices.Contains(c.UIDs, m.UID) && m.isReverting(w.Rules, now)
	}):
		w.idle = time.Time{}
	case w.idle.IsZero() && len(d.Change) == 0:
		w.idle = now
	}
	return d
}

// seePod takes in the present state of the pod. It reports whether another rollout has taken the pod from this one.
func (t *watched) seePod(pod *corev1.Pod, now time.Time, rules Rules, own Claim) (taken bool) {
	first := !t.seen
	t.seen, t.pod, t.Ready = true, pod, IsReady(pod)
	claim := ClaimOf(pod.Annotations)
	if first {
		if t.Since.IsZero() {
			t.Since = now
		}
		if t.Stage == Behind && t.plan.Unrecorded() { // an earlier rollout has changed it
			t.Stage, t.Ours, t.own, t.wasReady, t.waits, t.holder = Changing, true, t.plan.Own, true, false, claim.Holder
		}
	}
	taken = t.seeClaim(claim, own, first, now)
	switch t.Stage {
	case Behind:
		if t.Reverts && !t.Ready { // it may become ready again for a while
			t.Since = now
		}
		switch t.Starting = ""; {
		case t.Ready:
		case nodeSilent(pod):
			t.Starting = "its node to report"
		case Changed(&pod.ObjectMeta).IsZero() && now.Sub(t.Since) < rules.Proof && now.Sub(pod.CreationTimestamp.Time) < rules.Proof:
			t.Starting = "it to start"
		}
	case Changing:
		if t.checkEffect(now); t.Stage == Changing && t.Failed == "" && !t.slipped.IsZero() && now.Sub(t.slipped) > slip {
			t.markFallen(t.lasted)
		}
	case Baking, Proved:
		t.checkStillReady(now, rules)
	case Settled, Fallen:
	}
	return taken
}

// seeClaim takes in the claim in the pod. While it is of another rollout, the pod counts as one that is not proved. It reports
// whether that rollout has taken the pod from this one. This rollout goes on with a pod that goes back, or that another rollout has left
// with a failed change, in spite of the claim in it. A later claim of another rollout counts.
func (t *watched) seeClaim(c, own Claim, first bool, now time.Time) (taken bool) {
	foreign := c.Holder != "" && c.Holder != own.Holder && (!t.Ours || c.Holder != t.holder)
	switch goesOn := t.Stage == Behind && t.Reverts; {
	case goesOn && c.Holder == own.Holder, goesOn && foreign && (first || c == t.claim): // in spite of the claim of another rollout
		if foreign {
			t.claim = c
		}
	case !foreign && t.claim.Holder != "": // the other rollout has proved the pod, or has not changed it
		if t.claim, t.Proof = (Claim{}), 0; !t.Ours && t.isUnproved() {
			t.noteSettled(now)
		}
		if t.plan != nil { // that rollout is no reason for doubt any more
			t.Reverts = t.plan.Reverts()
		}
	case !foreign:
	case c != t.claim:
		taken = t.Ours && t.isUnproved()
		t.Stage, t.Since, t.Ours, t.wasReady, t.claim, t.Proof, t.Failed = Changing, now, false, true, c, max(c.Proof, minClaim), ""
		if t.own = nil; t.plan != nil {
			t.own = t.plan.Own
		}
	case t.waits && !t.Ours && t.Stage == Changing && !t.Ready && now.Sub(t.Since) > slip && c.overlaps(own):
		// The other rollout has failed, or was killed, and the pod may need this change. It cannot become worse.
		t.Stage, t.Since, t.Reverts = Behind, now, true
	}
	return taken
}

// noteSettled notes that another rollout is done with the pod.
func (t *watched) noteSettled(now time.Time) {
	if t.Stage, t.Since, t.Waits = Settled, now, ""; t.waits {
		t.Stage = Behind
	}
}

// checkEffect finds out whether the change has taken effect.
func (t *watched) checkEffect(now time.Time) {
	h := t.health()
	if t.Failed, t.Waits, t.Ended = h.Failed, h.Waits, h.Ended; !h.Done {
		t.unprobed = time.Time{}
		return
	}
	if name, atMost := awaitedStartupProbe(t.pod, t.own); name != "" {
		if t.unprobed.IsZero() {
			t.unprobed = now
		}
		if now.Sub(t.unprobed) < atMost {
			t.Waits = "the startup probe of the container " + name
			return
		}
	}
	t.begun = t.Since
	t.Stage, t.Since, t.well, t.turned, t.starts = Baking, now, now, turnedReady(t.pod), t.restartCount()
	if t.loose = unscheduledCondition(t.pod) != nil; t.loose { // it starts with the change
		t.Since = time.Time{}
	}
}

func (t *watched) health() Health {
	h := Check(t.pod, t.before, t.own, t.wasReady)
	if h.Failed == "" && t.own == nil {
		h.Failed = Stuck(t.pod)
	}
	return h
}

// restartCount returns how often the kubelet has restarted the pod's containers that change.
func (t *watched) restartCount() (n int32) {
	for _, name := range t.own {
		if s := statusOf(t.pod, name); s != nil {
			n += s.RestartCount
		}
	}
	return n
}

// checkStillReady finds out whether a pod that was ready with the change still is, and has been all the time.
func (t *watched) checkStillReady(now time.Time, rules Rules) {
	if t.loose {
		return
	}
	h := t.health()
	if !t.wasReady && t.Ready { // it is better than before
		t.wasReady, t.turned = true, turnedReady(t.pod)
	}
	interrupted := t.wasReady && !turnedReady(t.pod).Equal(t.turned) || t.restartCount() != t.starts
	if h.Done && !interrupted {
		return
	}
	lasted := now.Sub(t.well).Round(time.Second)
	unsettled := t.Ours && now.Sub(t.well) < settling && !nodeSilent(t.pod)
	switch {
	case t.Stage == Proved && (unsettled || !t.slipped.IsZero()):
		t.seeSlip(h.Done, now, lasted)
	case t.Stage == Baking && unsettled && now.Sub(t.begun) < rules.Timeout:
		t.Stage, t.Since, t.Waits, t.slipped, t.lasted = Changing, t.begun, "the pod to stay Ready", now, lasted
		t.checkEffect(now)
	case !t.Ours || nodeSilent(t.pod):
		t.Stage, t.Since, t.begun, t.slipped, t.Waits = Changing, now, now, time.Time{}, "the pod to become Ready"
		if nodeSilent(t.pod) {
			t.Waits = "its node to report"
		}
	default:
		t.markFallen(lasted)
	}
}

// seeSlip takes in that a pod which was proved at once is not ready, or is ready again, soon after its change. It is no failure if
// that does not take long.
func (t *watched) seeSlip(ready bool, now time.Time, lasted time.Duration) {
	switch {
	case ready:
		t.slipped, t.turned, t.starts = time.Time{}, turnedReady(t.pod), t.restartCount()
	case t.slipped.IsZero():
		t.slipped, t.lasted = now, lasted
	case now.Sub(t.slipped) > slip:
		t.markFallen(t.lasted)
	}
}

// markFallen notes that a pod was ready with the change for some time, and is not any more.
func (t *watched) markFallen(lasted time.Duration) {
	t.Stage, t.Waits = Fallen, fmt.Sprintf("it was ready with the change for %s, and is not any more: %s", lasted, describeTrouble(t.pod, t.own))
}

// nodeSilent reports whether a pod is not Ready only because its node does not report. Then the node lifecycle controller
// sets the condition Ready, and no other one (MarkPodsNotReady in pkg/util/node/node.go of Kubernetes).
func nodeSilent(pod *corev1.Pod) bool {
	containers := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.ContainersReady && c.Status == corev1.ConditionTrue
	})
	return containers && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue && c.Reason != "ReadinessGatesNotReady"
	})
}

// describeTrouble returns the state of a container because of which a pod is not ready. The containers of the rollout come first.
func describeTrouble(pod *corev1.Pod, own []string) string {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	slices.SortStableFunc(all, func(a, b corev1.ContainerStatus) int {
		rank := func(name string) int { return slices.Index(own, name) }
		return cmp.Compare(rank(b.Name), rank(a.Name))
	})
	for i := range all {
		s := &all[i]
		if _, stays := findContainer(pod, s.Name); !stays || s.Ready || hasEnded(pod, s.Name) {
			continue
		}
		switch {
		case s.State.Waiting != nil:
			return fmt.Sprintf("the container %s waits: %s", s.Name, orWord(s.State.Waiting.Message, s.State.Waiting.Reason))
		case s.State.Terminated != nil:
			return fmt.Sprintf("the container %s has ended with the exit code %d", s.Name, s.State.Terminated.ExitCode)
		}
		return fmt.Sprintf("the container %s runs and is not ready", s.Name)
	}
	for i := range all {
		if last := all[i].LastTerminationState.Terminated; last != nil && slices.Contains(own, all[i].Name) {
			return fmt.Sprintf("the container %s had ended with the exit code %d, and runs again", all[i].Name, last.ExitCode)
		}
	}
	if IsReady(pod) {
		return "it was not Ready for a moment"
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return "its condition Ready: " + orWord(c.Message, c.Reason)
		}
	}
	return "it has no condition Ready"
}

// Troubled returns the name of the container because of which a pod is not ready, or "".
func Troubled(pod *corev1.Pod) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if _, stays := findContainer(pod, s.Name); stays && !s.Ready && !hasEnded(pod, s.Name) {
			return s.Name
		}
	}
	return ""
}
