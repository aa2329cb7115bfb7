// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// A rollout promises that at no time more pods of a workload are unready because of it than MaxUnavailable allows. A pod
// that starts well may fail later, so a changed pod keeps its place until it has been ready for a while: until it is
// proved. So if all changed pods that are not proved fail at once, the promise still holds.

// Rules are the limits of a rollout for one workload.
type Rules struct {
	// MaxUnavailable are numbers or percentages of pods. The smallest one counts.
	MaxUnavailable []Unavailable
	// Proof is how long a changed pod must be ready, without an interruption, until it is proved: MinReady or Bake,
	// whichever is longer. Zero is the behavior of a Deployment without minReadySeconds.
	Proof time.Duration
	// Timeout is how long a changed pod may take to become ready, and how long nothing may change.
	Timeout time.Duration
	// Undo is set if pods get again what they had before. Then a pod that is not ready does not wait for others: the change
	// cannot make it worse.
	Undo bool
}

// maxUnready returns how many of so many pods may be unready because of the rollout.
func (r Rules) maxUnready(pods int) int {
	n := r.MaxUnavailable[0].Of(pods)
	for _, u := range r.MaxUnavailable[1:] {
		n = min(n, u.Of(pods))
	}
	return n
}

// Stage is how far a pod of a workload is.
type Stage string

// The stages.
const (
	// Settled pods were there before the rollout, and need no change.
	Settled Stage = "settled"
	// Behind pods wait for their change.
	Behind Stage = "behind"
	// Changing pods have the change, and are not ready with it.
	Changing Stage = "changing"
	// Baking pods are ready with the change, and not proved.
	Baking Stage = "baking"
	// Proved pods have been ready with the change for as long as the rules ask.
	Proved Stage = "proved"
	// Fallen pods were ready with the change, and are not any more.
	Fallen Stage = "fallen"
)

// Member is a pod of a workload as a rollout has watched it until now. Pods that are being deleted or have ended are
// none.
type Member struct {
	Name  string
	UID   string
	Stage Stage
	Since time.Time // when the stage began, by the clock of the rollout
	Ready bool
	// Ours is set if the rollout has changed the pod, or has caused its creation. Only such a pod stops the rollout.
	Ours bool
	// Place is the UID of the pod of the plan: that of the pod itself, or of the one that it replaces.
	Place string
	// Starting is what the pod waits for before it may change, or "": it was created a moment ago and may become ready
	// without a change, or its node does not report.
	Starting string
	// Restarts is set if the change restarts a container, so that budgets count.
	Restarts bool
	// Reverts is set if the pod is behind because it has a change that was not proved and goes back, see [Pod.Reverts]. So it
	// may become unready at any time, and counts as a changed pod already, until it has been ready for as long as a proved one.
	Reverts bool
	// Proof is how long another rollout that has changed the pod asks it to be ready, or 0. The rules hold too.
	Proof   time.Duration
	Budgets []string // the names of the budgets that select the pod
	Failed  string   // why it will never be ready, or ""
	Waits   string   // what it waits for, or ""
	Ended   string   // the container that has ended and does not run again yet, or ""; events have the reason
}

// isUnproved reports whether a pod has the change and is not proved.
func (m *Member) isUnproved() bool {
	return m.Stage == Changing || m.Stage == Baking || m.Stage == Fallen
}

// isReverting reports whether a pod that waits for its change has another one that is not proved.
func (m *Member) isReverting(rules Rules, now time.Time) bool {
	return m.Stage == Behind && m.Reverts && now.Sub(m.Since) < rules.Proof
}

// View is what a rollout knows about the pods of a workload.
type View struct {
	Members []Member
	// Desired is the number of pods that the workload should have, or -1 if that is unknown.
	Desired int
	// Next are the UIDs of pods that wait for their change, in the order in which they get it.
	Next []string
	// Budgets are the numbers of pods that each budget lets the rollout disrupt now, besides those that are not proved.
	Budgets map[string]int
	// Idle is since when no pod of the rollout is between its change and its proof, and no change was possible.
	Idle time.Time
}

// Decision is what a rollout may do now.
type Decision struct {
	Change []string // the UIDs of the pods that may change
	Proved []string // the UIDs of the pods that are proved from now on
	Stop   *Stop    // why nothing more may change, or nil
	Waits  string   // what the next change waits for, or ""
	Of     string   // the name of the pod that waits, or ""
}

// Stop is why a rollout may change no more pods of a workload.
type Stop struct {
	Pod string // its name, or "" if it is about the workload
	UID string
	Why string
	// Fell is set if the pod was ready with the change.
	Fell bool
	// Blocked is set if no pod has failed because of the rollout: pods that it has not changed are not ready, or a budget
	// allows no disruption.
	Blocked bool
}

// Decide returns which pods of a workload may change now, and whether the rollout has to stop. It has no other input, so
// all rollouts decide alike.
func Decide(v *View, rules Rules, now time.Time) (d Decision) {
	d.Stop = findStop(v, rules, now)
	g := &gate{allowed: rules.maxUnready(v.podCount()), undo: rules.Undo, budgets: maps.Clone(v.Budgets), doubts: map[string]int{}}
	ready, unready, proof := 0, 0, time.Duration(0)
	for i := range v.Members {
		m := &v.Members[i]
		if m.Ready {
			ready++
		} else {
			unready++
			g.unready = append(g.unready, m.Name)
		}
		switch {
		case m.Stage == Baking && now.Sub(m.Since) >= max(rules.Proof, m.Proof):
			d.Proved = append(d.Proved, m.UID)
		case m.isUnproved():
			if g.unproved++; m.Ready {
				g.risk++
			}
			if !m.Ours {
				proof = max(proof, rules.Proof, m.Proof)
			}
		case m.isReverting(rules, now):
			if g.reverts++; m.Ready {
				g.countDoubt(m, 1)
			}
		}
	}
	if d.Stop != nil {
		return d
	}
	if g.down = unready; v.Desired >= 0 {
		g.down = max(0, v.Desired-ready)
	}
	for _, uid := range v.Next {
		i := slices.IndexFunc(v.Members, func(m Member) bool { return m.UID == uid })
		switch {
		case i < 0:
			continue
		case v.Members[i].Stage != Behind:
			if !v.Members[i].Ours && v.Members[i].isUnproved() && d.Waits == "" {
				d.Waits, d.Of = "another rollout to prove its change of the pod", v.Members[i].Name
			}
			continue
		}
		if why := g.admitPod(&v.Members[i], v.Members[i].isReverting(rules, now)); why == "" {
			d.Change = append(d.Change, uid)
		} else if d.Waits == "" {
			d.Waits, d.Of = why, v.Members[i].Name
		}
	}
	if len(d.Change) == 0 && d.Waits != "" && !v.Idle.IsZero() && now.Sub(v.Idle) > rules.Timeout+proof {
		d.Stop = &Stop{Pod: d.Of, Why: fmt.Sprintf("it is not changed after %s: it waits for %s", rules.Timeout, d.Waits), Blocked: true}
	}
	return d
}

// podCount returns the number of pods that percentages are of.
func (v *View) podCount() int {
	if v.Desired >= 0 {
		return v.Desired
	}
	return len(v.Members)
}

// findStop returns why a pod that the rollout has changed stops it, or nil.
func findStop(v *View, rules Rules, now time.Time) *Stop {
	for i := range v.Members {
		m := &v.Members[i]
		switch {
		case !m.Ours:
		case m.Stage == Fallen:
			return &Stop{Pod: m.Name, UID: m.UID, Why: m.Waits, Fell: true}
		case m.Stage == Changing && m.Failed != "":
			return &Stop{Pod: m.Name, UID: m.UID, Why: m.Failed}
		case m.Stage == Changing && now.Sub(m.Since) > rules.Timeout:
			return &Stop{Pod: m.Name, UID: m.UID, Why: fmt.Sprintf("it is not done after %s: it waits for %s", rules.Timeout, m.Waits)}
		}
	}
	return nil
}

// gate counts while a decision admits one pod after another.
type gate struct {
	allowed  int // pods that may be unready
	down     int // pods that are missing or unready, for any reason
	unproved int // pods that have the change and are not proved
	risk     int // the ready ones of these
	reverts  int // pods that have the change, are not proved, and wait to go back
	doubt    int // the ready ones of these
	undo     bool
	unready  []string
	budgets  map[string]int
	doubts   map[string]int // the pods of doubt, by budget: each may become unready, and the budget does not know that
}

// countDoubt counts a ready pod that has a change which was not proved, and waits to go back.
func (g *gate) countDoubt(m *Member, n int) {
	g.doubt += n
	for _, name := range m.Budgets {
		g.doubts[name] += n
	}
}

// admitPod admits a pod, or returns what it has to wait for. A doubtful one counts already.
func (g *gate) admitPod(m *Member, doubtful bool) (waits string) {
	switch {
	case m.Starting != "":
		return m.Starting
	case doubtful && m.Ready && g.down+g.risk+g.doubt > g.allowed:
		return g.describeUnready()
	case doubtful:
	case g.unproved+g.reverts+1 > g.allowed && (m.Ready || !g.undo):
		return fmt.Sprintf("%s to be proved, because %s may be unavailable", explain.Plural(g.unproved+g.reverts, "changed pod"), explain.Plural(g.allowed, "pod"))
	case m.Ready && g.down+g.risk+g.doubt+1 > g.allowed:
		return g.describeUnready()
	}
	counts := m.Ready && m.Restarts
	for _, name := range m.Budgets {
		if counts && (g.budgets[name] < 1 || !doubtful && g.budgets[name]-g.doubts[name] < 1) {
			return "the PodDisruptionBudget " + name + " to allow a disruption"
		}
	}
	if g.unproved++; m.Ready {
		g.risk++
	}
	if doubtful {
		if g.reverts--; m.Ready {
			g.countDoubt(m, -1)
		}
	}
	for _, name := range m.Budgets {
		if counts {
			g.budgets[name]--
		}
	}
	return ""
}

// describeUnready names the pods that are not ready.
func (g *gate) describeUnready() string {
	text := explain.Plural(g.down, "pod") + " to be ready"
	if len(g.unready) > 0 {
		text += ", for example " + g.unready[0]
	}
	return text + fmt.Sprintf(", because %s may be unavailable", explain.Plural(g.allowed, "pod"))
}
