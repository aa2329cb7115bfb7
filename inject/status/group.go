// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
)

// Tally is pods, by what they have.
type Tally struct {
	Pods int `json:"pods"`
	// Injected are those that have a sidecar, in whatever state.
	Injected int `json:"injected"`
	Current  int `json:"current"`
	Outdated int `json:"outdated"`
	Missing  int `json:"missing"`
	Altered  int `json:"altered"`
	// NotWanted are those that are to have none.
	NotWanted int `json:"notWanted"`
}

func (t *Tally) of(s explain.State) *int {
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

func (t *Tally) add(s explain.State, injected bool) {
	t.Pods++
	*t.of(s)++
	if injected {
		t.Injected++
	}
}

func (t *Tally) merge(o *Tally) {
	t.Pods += o.Pods
	t.Injected += o.Injected
	for _, s := range explain.States() {
		*t.of(s) += *o.of(s)
	}
}

func isInjected(s explain.State) bool {
	return s == explain.Current || s == explain.Outdated || s == explain.Altered
}

// worse is the one of two states that is to be seen to first.
func worse(a, b explain.State) explain.State {
	order := explain.States()
	return order[min(slices.Index(order, a), slices.Index(order, b))]
}

func sorted[T any](all map[string]T) []string { return slices.Sorted(maps.Keys(all)) }

// Owner is what made a pod.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"` // "" of a Pod: all that nothing made
}

func compareOwners(a, b Owner) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.APIVersion, b.APIVersion))
}

// resource is the owner as kubectl rollout restart takes it; "" if it does not. The
// author of a pod may name any owner, and this becomes arguments of a command.
func (o Owner) resource() string {
	switch group, _, _ := strings.Cut(o.APIVersion, "/"); {
	case group != "apps", len(validation.IsDNS1123Subdomain(o.Name)) > 0:
	case o.Kind == "Deployment", o.Kind == "StatefulSet", o.Kind == "DaemonSet":
		return strings.ToLower(o.Kind) + ".apps/" + o.Name
	}
	return ""
}

// title is the owner as people know it.
func (o Owner) title() string {
	if o.Kind == "Pod" && o.Name == "" {
		return "pods without a workload to restart"
	}
	return o.Kind + "/" + o.Name
}

// maxReasons bounds how many different reasons are kept of an owner's template.
const maxReasons = 5

// Reason is why pods of an owner are not current.
type Reason struct {
	Template string        `json:"template"`
	State    explain.State `json:"state"`
	Code     inject.Code   `json:"code,omitempty"` // why a new pod would not get it; "" where it would
	Why      string        `json:"why"`            // one sentence
	Pods     int           `json:"pods"`
	Example  string        `json:"example"` // the name of one of the pods
}

// Mistake is what pods of an owner ask for, and nobody knows.
type Mistake struct {
	Template string      `json:"template,omitempty"` // "" where no template is meant that exists
	Code     inject.Code `json:"code"`               // unknown_template or unknown_parameter
	Why      string      `json:"why"`                // one sentence
	Pods     int         `json:"pods"`
	Example  string      `json:"example"` // the name of one of the pods
	Denied   bool        `json:"denied"`  // a pod made anew would be refused for it
}

// group is the pods of one owner.
type group struct {
	pods       Tally
	byName     map[string]*Tally
	reasons    []Reason
	mistakes   []Mistake
	wrong      bool   // made anew, one of them would not be right
	changed    bool   // one was injected, and was changed since
	hold       string // why to restart the owner would not help; "" if it would
	unwanted   string // the name of a pod that is to have no sidecar
	deployment string // what made the owner, by its name
}

func newGroup() *group {
	return &group{byName: map[string]*Tally{}, hold: "its new pods are unknown"}
}

func (g *group) add(template string, s explain.State, injected bool) {
	entry(g.byName, template).add(s, injected)
}

// because counts a reason. What says something else of every pod must not fill
// the memory: the last place is for all others.
func (g *group) because(r Reason) {
	same := 0
	for i := range g.reasons {
		k := &g.reasons[i]
		if k.Template != r.Template || k.State != r.State {
			continue
		}
		if same++; k.Code == r.Code && k.Why == r.Why || same == maxReasons {
			k.Pods += r.Pods
			return
		}
	}
	if same == maxReasons-1 {
		r.Why = "for other reasons"
	}
	g.reasons = append(g.reasons, r)
}

// mistaken counts a mistake, of as many different ones as there are reasons.
func (g *group) mistaken(m Mistake) {
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

func (g *group) merge(o *group) {
	g.pods.merge(&o.pods)
	g.wrong, g.changed, g.unwanted = g.wrong || o.wrong, g.changed || o.changed, cmp.Or(g.unwanted, o.unwanted)
	for name, t := range o.byName {
		entry(g.byName, name).merge(t)
	}
	for _, r := range o.reasons {
		g.because(r)
	}
	for _, m := range o.mistakes {
		g.mistaken(m)
	}
}

// held reports why it does not help to make the pods anew: all are current, or not all would be right then.
func (g *group) held() string {
	switch {
	case len(g.reasons) == 0:
		return "its pods are current"
	case g.hold == "" && g.wrong:
		return "not all new pods would be current"
	}
	return g.hold
}

// entry is the tally of a name, which is made if there is none.
func entry(all map[string]*Tally, name string) *Tally {
	t := all[name]
	if t == nil {
		t = &Tally{}
		all[name] = t
	}
	return t
}

// Failing is an owner that cannot make all the pods that it should.
type Failing struct {
	Namespace string `json:"namespace"`
	Owner
	Why string `json:"why"` // what its status says, or an event about it

	unexplained string // what its status says if that is not why
}

// String is a sentence.
func (f *Failing) String() string {
	return fmt.Sprintf("%s in the namespace %s cannot create its pods: %s", f.title(), f.Namespace, f.Why)
}
