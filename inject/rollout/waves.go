// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/inject/explain"
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
	Way        Way
	Why        string // one sentence, or ""
	// Restarted is when an earlier rollout restarted it, if it is replacing pods since then.
	Restarted time.Time
	// Behind are the pods that are not current. Others are not kept.
	Behind []*Pod
}

// Title returns the workload as users know it.
func (w *Workload) Title() string { return w.Kind + "/" + w.Name }

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
			p.leave("only a new pod gets the change: " + p.Why)
		}
	}
	if o.Updating && o.Newest != nil {
		w.Behind = slices.DeleteFunc(w.Behind, func(p *Pod) bool { return !o.Newest(p) })
		if len(w.Behind) == 0 {
			w.Way, w.Why = Await, "it is replacing its pods already"
			return
		}
	}
	replace := w.first(Replace)
	switch leave, patch := w.first(Leave), w.first(Patch); {
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
	if w.Way != Restart && w.Way != Evict && w.Way != Keep && w.first(Patch) != nil && w.Way != ChangeInPlace {
		w.Why += "; pods that need no new one change in place"
		w.Way = ChangeInPlace
	}
}

func (w *Workload) first(a Action) *Pod {
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

// Waves returns the workloads that change, in waves: one with the first ones, if first is not zero,
// and then waves of the given size.
func Waves(all []*Workload, first, size int) (waves [][]*Workload) {
	left := slices.DeleteFunc(slices.Clone(all), func(w *Workload) bool { return !w.Acts() })
	for n := first; len(left) > 0; n = size {
		if n = min(n, len(left)); n > 0 {
			waves, left = append(waves, left[:n]), left[n:]
		}
	}
	return waves
}

// Unavailable is how many pods of a workload may be unavailable at a time because of a rollout.
type Unavailable struct {
	n       int
	percent bool
}

// ParseUnavailable parses a number or a percentage.
func ParseUnavailable(text string) (u Unavailable, err error) {
	number, percent := strings.CutSuffix(text, "%")
	u.percent = percent
	if u.n, err = strconv.Atoi(number); err != nil || u.n < 1 || percent && u.n > 100 {
		return u, fmt.Errorf("must be a number of pods of at least 1, or a percentage such as 25%%, not %q", text)
	}
	return u, nil
}

// Of returns the number of pods. Percentages are rounded down, but it is at least one.
func (u Unavailable) Of(pods int) int {
	if !u.percent {
		return u.n
	}
	return max(1, pods*u.n/100)
}
