// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// Way is how a rollout updates the pods of a workload.
type Way string

// The ways.
const (
	// Keep does nothing: all pods are current.
	Keep Way = "current"
	// ChangeInPlace changes the pods one after another.
	ChangeInPlace Way = "in place"
	// Restart replaces all pods, as kubectl rollout restart does.
	Restart Way = "restart"
	// Await waits until the workload has replaced its pods, because it already does.
	Await Way = "await"
	// Evict deletes pods through the eviction API, and their controller creates new ones.
	Evict Way = "evict"
	// Cannot leaves the pods to the user.
	Cannot Way = "cannot"
	// Finish leaves the pods of a Job until they end.
	Finish Way = "finish"
)

// Workload is an owner of pods, and how it is updated.
type Workload struct {
	Namespace  string
	APIVersion string
	Kind       string // Pod for pods without an owner
	Name       string
	Pods       int // all that run
	Limits     Limits
	Way        Way
	Why        string // one sentence, or ""
	// Restarted is when an earlier rollout restarted it, if it is replacing pods since then.
	Restarted time.Time
	// Behind are the pods that are not current. Others are not kept.
	Behind []*Pod
}

// Title returns the workload as users know it.
func (w *Workload) Title() string { return w.Kind + "/" + w.Name }

// Builtin reports whether the workload has a number of pods that it should have, as the kinds of Kubernetes do.
func (w *Workload) Builtin() bool {
	return slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController"}, w.Kind)
}

// Acts reports whether a rollout does something.
func (w *Workload) Acts() bool { return w.Way != Keep && w.Way != Cannot && w.Way != Finish }

// Todo returns the pods that change.
func (w *Workload) Todo() (all []*Pod) {
	for _, p := range w.Behind {
		if w.Way == Restart || w.Way == Await || p.Action == Patch && (w.Way == ChangeInPlace) || p.Action == Replace && w.Way == Evict {
			all = append(all, p)
		}
	}
	return all
}

// Summary returns what changes in the pods in place, for users. Different pods may need different changes.
func (w *Workload) Summary() string {
	var all []string
	pods := map[string]int{}
	todo := w.Todo()
	for _, p := range todo {
		what := p.Summary()
		if pods[what]++; pods[what] == 1 {
			all = append(all, what)
		}
	}
	const most = 3
	if len(all) == 1 {
		return all[0]
	}
	var parts []string
	for i, what := range all {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d other changes", len(all)-most))
			break
		}
		parts = append(parts, what+" in "+explain.Plural(pods[what], "pod"))
	}
	return strings.Join(parts, "; ")
}

// Unfinished reports whether an earlier rollout began to update the workload, and has not finished: it has
// restarted it, or a pod has changed and this is not recorded yet.
func (w *Workload) Unfinished() bool {
	return !w.Restarted.IsZero() || slices.ContainsFunc(w.Behind, (*Pod).Unrecorded)
}

// Owner is what decides about a workload besides its pods.
type Owner struct {
	Restarts bool   // kubectl rollout restart supports its kind
	Hold     string // why a restart would not help, or ""
	Job      bool
	// Recreates is set if the controller is known to create a new pod for each that is evicted.
	Recreates bool
	// Updating is set if it is replacing pods, so that pods of an older pod template are replaced
	// anyway.
	Updating bool
	// Restarted is when an earlier rollout restarted it, if that is its last change.
	Restarted time.Time
	// Newest reports whether a pod is of the newest pod template. It is nil if that is unknown.
	Newest func(pod *Pod) bool
	// InPlace is set if pods may only change in place.
	InPlace bool
}

// Choose decides how a workload is updated.
func (w *Workload) Choose(o Owner) {
	if o.Updating {
		w.Restarted = o.Restarted
	}
	for _, p := range w.Behind {
		if o.InPlace && p.Action == Replace {
			p.leaveBecause("only a new pod gets the change: " + p.Why)
		}
	}
	if o.Updating && o.Newest != nil {
		w.Behind = slices.DeleteFunc(w.Behind, func(p *Pod) bool { return !o.Newest(p) })
		if len(w.Behind) == 0 {
			w.Way, w.Why = Await, "it is replacing its pods already"
			return
		}
	}
	replace := w.firstByAction(Replace)
	switch leave, patch := w.firstByAction(Leave), w.firstByAction(Patch); {
	case replace == nil && patch != nil:
		w.Way = ChangeInPlace
		if leave != nil {
			w.Why = "not " + leave.Name + ": " + leave.Why
		}
	case replace == nil && leave != nil:
		w.Way, w.Why = Cannot, leave.Why
	case replace == nil:
		w.Way = Keep
	case o.Job:
		w.Way, w.Why = Finish, "only a new pod gets the change ("+replace.Why+"), and a running Job is never restarted"
	case leave != nil && o.Restarts:
		w.Way, w.Why = Cannot, "a restart would discard a change: "+leave.Why
	case o.Restarts && o.Hold != "":
		w.Way, w.Why = Cannot, replace.Why+", but a restart would not help: "+o.Hold
	case o.Restarts:
		w.Way, w.Why = Restart, replace.Why
	case o.Recreates:
		w.Way, w.Why = Evict, replace.Why
	case w.Kind == "Pod":
		w.Way, w.Why = Cannot, replace.Why+", and no controller would create the pod again"
	default:
		w.Way, w.Why = Cannot, replace.Why+", and whether "+w.Title()+" would create the pod again is unknown"
	}
	if w.Way != Restart && w.Way != Evict && w.Way != Keep && w.firstByAction(Patch) != nil && w.Way != ChangeInPlace {
		w.Why += "; pods that need no new one change in place"
		w.Way = ChangeInPlace
	}
}

func (w *Workload) firstByAction(a Action) *Pod {
	for _, p := range w.Behind {
		if p.Action == a {
			return p
		}
	}
	return nil
}

// Sort orders workloads, so that each run has the same order.
func Sort(all []*Workload) {
	slices.SortFunc(all, func(a, b *Workload) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
}

// Part is some of the pods of a workload that change in one wave.
type Part struct {
	*Workload

	Pods []*Pod
}

// Waves divides a rollout. Each wave ends when its pods are proved, so a wave limits what a bad change can reach.
type Waves struct {
	// First is the number of pods of the first wave, or 0 if there is no such wave.
	First int
	// FirstWorkloads is the number or the percentage of workloads that are updated before all others, or the zero value.
	FirstWorkloads Unavailable
	// Shares are the percentages of all pods at which the other waves end, in ascending order. A last wave has the rest.
	Shares []int
}

// ParseShares parses percentages such as 5%, 25% and 100%.
func ParseShares(texts []string) (all []int, err error) {
	for _, text := range texts {
		number, percent := strings.CutSuffix(text, "%")
		n, err := strconv.Atoi(number)
		if err != nil || !percent || n < 1 || n > 100 || len(all) > 0 && n <= all[len(all)-1] {
			return nil, fmt.Errorf("must be percentages in ascending order, such as 5%%,25%%,100%%, not %q", strings.Join(texts, ","))
		}
		all = append(all, n)
	}
	return all, nil
}

// Parts returns the workloads that change, in the order in which they change: those that an earlier rollout has begun,
// so that one of them that has failed stops the rollout before it reaches others; then those whose pods change one by
// one, so that a wave can be a single pod; then those that are restarted.
func Parts(all []*Workload) (parts []Part) {
	for _, w := range all {
		if w.Acts() {
			parts = append(parts, Part{w, orderPods(w.Todo())})
		}
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(a.rank(), b.rank()) })
	return parts
}

func (p Part) rank() int {
	switch {
	case p.Unfinished():
		return 0
	case p.canSplit():
		return 1
	}
	return 2
}

// canSplit reports whether the pods of a workload may change in different waves.
func (p Part) canSplit() bool { return p.Way == ChangeInPlace || p.Way == Evict }

// orderPods returns the pods that an earlier rollout has begun to change, then those that are not ready, which may need the
// change, then those that may become unready because of an earlier rollout, then the others.
func orderPods(all []*Pod) []*Pod {
	rank := func(p *Pod) int {
		switch {
		case p.Unrecorded():
			return 0
		case !p.Ready:
			return 1
		case p.Reverts():
			return 2
		}
		return 3
	}
	slices.SortStableFunc(all, func(a, b *Pod) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

// Ends returns the numbers of pods after which the waves end, in ascending order. The last one is that of all pods.
func (w Waves) Ends(parts []Part) (ends []int) {
	total := 0
	for _, p := range parts {
		total += p.podCount()
	}
	add := func(n int) {
		if n = min(n, total); n > 0 && (len(ends) == 0 || n > ends[len(ends)-1]) {
			ends = append(ends, n)
		}
	}
	add(w.First)
	if w.FirstWorkloads.n > 0 {
		first := 0
		for _, p := range parts[:min(w.FirstWorkloads.Of(len(parts)), len(parts))] {
			first += p.podCount()
		}
		add(first)
	}
	for _, share := range w.Shares {
		add(total * share / 100)
	}
	add(total)
	return ends
}

// podCount returns the number of pods. A workload that an earlier rollout has restarted may have none that is behind.
func (p Part) podCount() int { return max(1, len(p.Pods)) }

// TakeWave divides parts into a wave of at least n pods, or all if there are fewer, and the rest. Pods that an earlier
// rollout has begun to change are in the first wave, and a workload that is restarted is in one wave.
func TakeWave(parts []Part, n int) (wave, rest []Part) {
	for _, p := range parts {
		begun := 0
		for begun < len(p.Pods) && p.Pods[begun].Unrecorded() {
			begun++
		}
		size := p.podCount()
		if p.canSplit() {
			size = min(max(n, begun), size)
		}
		switch {
		case n <= 0 && begun == 0:
			rest = append(rest, p)
			continue
		case size >= p.podCount():
			wave = append(wave, p)
		default:
			wave = append(wave, Part{p.Workload, p.Pods[:size]})
			rest = append(rest, Part{p.Workload, p.Pods[size:]})
		}
		n -= size
	}
	return wave, rest
}
