// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// Tally counts pods by their state.
type Tally struct {
	Pods int `json:"pods"`
	// Injected counts pods with a sidecar, in any state.
	Injected int `json:"injected"`
	Current  int `json:"current"`
	Outdated int `json:"outdated"`
	Missing  int `json:"missing"`
	Altered  int `json:"altered"`
	// NotWanted counts pods that do not get a sidecar.
	NotWanted int `json:"notWanted"`
}

// countOf returns the count of a state.
func (t *Tally) countOf(s explain.State) *int {
	switch s {
	case explain.Current:
		return &t.Current
	case explain.Outdated:
		return &t.Outdated
	case explain.Missing:
		return &t.Missing
	case explain.Altered:
		return &t.Altered
	}
	return &t.NotWanted
}

func (t *Tally) addPod(s explain.State, injected bool) {
	t.Pods++
	*t.countOf(s)++
	if injected {
		t.Injected++
	}
}

func (t *Tally) mergeTally(o *Tally) {
	t.Pods += o.Pods
	t.Injected += o.Injected
	for _, s := range explain.States() {
		*t.countOf(s) += *o.countOf(s)
	}
}

func isInjected(s explain.State) bool {
	return s == explain.Current || s == explain.Outdated || s == explain.Altered
}

// worseState returns the more urgent one of two states.
func worseState(a, b explain.State) explain.State {
	order := explain.States()
	return order[min(slices.Index(order, a), slices.Index(order, b))]
}

func sortedKeys[T any](all map[string]T) []string { return slices.Sorted(maps.Keys(all)) }

// Owner is the owner of a pod.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"` // "" for pods without an owner
}

// controllerOf returns the owner that controls an object, or nil.
func controllerOf(owners []metav1.OwnerReference) *Owner {
	o := metav1.GetControllerOfNoCopy(&metav1.ObjectMeta{OwnerReferences: owners})
	if o == nil {
		return nil
	}
	return &Owner{o.APIVersion, o.Kind, o.Name}
}

func compareOwners(a, b Owner) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.APIVersion, b.APIVersion))
}

// restartArgument returns the owner as an argument of kubectl rollout restart, or "" if that command does
// not support it. It checks the name, because the author of a pod may name any owner.
func (o Owner) restartArgument() string {
	switch group, _, _ := strings.Cut(o.APIVersion, "/"); {
	case group != "apps", len(validation.IsDNS1123Subdomain(o.Name)) > 0:
	case o.Kind == "Deployment", o.Kind == "StatefulSet", o.Kind == "DaemonSet":
		return strings.ToLower(o.Kind) + ".apps/" + o.Name
	}
	return ""
}

// title returns the owner as users know it.
func (o Owner) title() string {
	if o.Kind == "Pod" && o.Name == "" {
		return "pods without a workload to restart"
	}
	return o.Kind + "/" + o.Name
}

// maxReasons limits the number of different reasons for an owner's template.
const maxReasons = 5

// Mistake is something that pods of an owner request and do not get: an unknown template or parameter, or a template that does not
// apply to them.
type Mistake struct {
	Template string      `json:"template,omitempty"` // "" if the mistake is about no existing template
	Code     inject.Code `json:"code"`               // unknown_template, unknown_parameter, or the decision about the template
	Why      string      `json:"why"`                // one sentence
	Pods     int         `json:"pods"`
	Example  string      `json:"example"` // the name of one pod
	Denied   bool        `json:"denied"`  // a new pod would be denied
}

// group counts the pods of one owner.
type group struct {
	pods       Tally
	byName     map[string]*Tally
	reasons    []explain.Reason
	mistakes   []Mistake
	wrong      bool           // whether a new pod like one of these would not be right
	changed    bool           // whether a pod was changed after its injection
	hold       string         // why a restart of the owner would not help; "" if it would
	examples   [][]byte       // pods that differ from new ones, one for each reason, until they are planned
	plans      []*rollout.Pod // what a rollout would do with the examples
	updating   bool           // whether the owner's controller is replacing pods
	unwanted   string         // the name of a pod that gets no sidecar
	deployment string         // the name of the Deployment that owns the owner
}

func (g *group) addPod(template string, s explain.State, injected bool) {
	tallyFor(g.byName, template).addPod(s, injected)
}

// findReason returns the reason in g.reasons in which r counts, or nil if r is new. Same is the number of different reasons for the same
// template and state that it has compared. To limit memory, there are at most maxReasons, and the last one counts all further ones.
func (g *group) findReason(r *explain.Reason) (at *explain.Reason, same int) {
	for i := range g.reasons {
		k := &g.reasons[i]
		if k.Template != r.Template || k.State != r.State {
			continue
		}
		if same++; k.Code == r.Code && k.Why == r.Why || same == maxReasons {
			return k, same
		}
	}
	return nil, same
}

// isNewReason reports whether no pod counted for a reason before.
func (g *group) isNewReason(r *explain.Reason) bool {
	at, _ := g.findReason(r)
	return at == nil
}

// addReason counts a reason.
func (g *group) addReason(r explain.Reason) {
	at, same := g.findReason(&r)
	if at != nil {
		at.Pods += r.Pods
		return
	}
	if same == maxReasons-1 {
		r.Why = "for other reasons"
	}
	g.reasons = append(g.reasons, r)
}

// addMistake counts a mistake. It keeps at most maxReasons different mistakes.
func (g *group) addMistake(m Mistake) {
	g.wrong = g.wrong || m.Denied
	for i := range g.mistakes {
		if k := &g.mistakes[i]; k.Why == m.Why && k.Denied == m.Denied {
			k.Pods += m.Pods
			return
		}
	}
	if len(g.mistakes) < maxReasons {
		g.mistakes = append(g.mistakes, m)
	}
}

func (g *group) mergeGroup(o *group) {
	g.pods.mergeTally(&o.pods)
	g.wrong, g.changed, g.unwanted = g.wrong || o.wrong, g.changed || o.changed, cmp.Or(g.unwanted, o.unwanted)
	for name, t := range o.byName {
		tallyFor(g.byName, name).mergeTally(t)
	}
	for _, r := range o.reasons {
		g.addReason(r)
	}
	for _, m := range o.mistakes {
		g.addMistake(m)
	}
	g.examples = append(g.examples, o.examples...)
}

// holdReason returns why a restart would not help, or "". Either all pods are current, or new pods would not be
// right.
func (g *group) holdReason() string {
	switch {
	case len(g.reasons) == 0:
		return "its pods are current"
	case g.hold == "" && g.wrong:
		return "some of its new pods would not be current"
	}
	return g.hold
}

// tallyFor returns the tally of a name and creates it if necessary.
func tallyFor(all map[string]*Tally, name string) *Tally {
	t := all[name]
	if t == nil {
		t = &Tally{}
		all[name] = t
	}
	return t
}
