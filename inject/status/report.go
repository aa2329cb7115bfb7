// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/templates"
)

// Report is the state of all pods that were looked at. Its JSON is a format that
// people script on (README.md): members are added, never renamed or removed.
type Report struct {
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Pods are all of them, each by the worst state of its templates: missing,
	// altered, outdated, current.
	Pods       Tally       `json:"pods"`
	Namespaces []Namespace `json:"namespaces"`
	// Templates, in the order in which they are applied; then those that are gone.
	Templates []Template `json:"templates"`
	Owners    []Status   `json:"owners"`
	// Mutators are what else changes pods when they are created.
	Mutators []Mutator `json:"mutators"`
	// Validators are what else judges them.
	Validators []Validator `json:"validators"`
	// Problems are what is wrong with Pillion itself, and Doubts what could not be found
	// out about what becomes of new pods. With either nothing is to be restarted.
	Problems []string `json:"problems,omitempty"`
	Doubts   []string `json:"doubts,omitempty"`
	// Failing are the owners that cannot make all their pods, and why.
	Failing []Failing `json:"failing,omitempty"`
	// Misplaced are the workloads with labels or annotations where Pillion does not read them.
	Misplaced []Misplaced `json:"misplaced,omitempty"`
	// Outside are those of the namespaces that the user named that have not opted in, and why; Unlabelled is how
	// many others could opt in, if the user named none.
	Outside    []Outside `json:"outside,omitempty"`
	Unlabelled int       `json:"unlabelled,omitempty"`
	// Notes are sentences about what could not be looked at, and about namespaces.
	Notes []string `json:"notes,omitempty"`

	commands Commands            // what the text tells users to run
	labels   []map[string]string // of the namespaces, in their order
	mistaken int                 // pods that ask for what nobody knows
	without  []without           // pods that are to have no sidecar, of namespaces that the user named
}

// without is how many pods of a namespace are to have no sidecar, although it opted in.
type without struct {
	namespace string
	pods      int
	example   string // the name of one
}

// Run sets the commands that the report repeats.
func (r *Report) Run(c Commands) {
	r.commands = c
	for i := range r.Outside {
		r.Outside[i].run(c, r.Problems)
	}
}

// Name adds to what [Report.Add] added of a namespace that the user named what is of interest for few namespaces
// only.
func (r *Report) Name(c *Count, known Known) {
	if o := NewOutside(&c.scope, known); o != nil {
		r.Outside = append(r.Outside, *o)
	} else if c.pods.NotWanted > 0 {
		r.without = append(r.without, without{c.scope.Namespace.Name, c.pods.NotWanted, r.unexplained(c)})
	}
}

// unexplained is the name of a pod that is to have no sidecar, of an owner about which the report says nothing,
// if there is one.
func (r *Report) unexplained(c *Count) (example string) {
	for _, o := range c.sorted() {
		g := c.owners[o]
		switch {
		case g.unwanted == "":
		case len(g.reasons)+len(g.mistakes) == 0 && !slices.ContainsFunc(r.Misplaced, func(m Misplaced) bool { return m.Namespace == c.scope.Namespace.Name && m.Owner == o }):
			return g.unwanted
		default:
			example = cmp.Or(example, g.unwanted)
		}
	}
	return example
}

// Namespace is the pods of one namespace.
type Namespace struct {
	Namespace string `json:"namespace"`
	Tally
}

// Template is the pods by what they have of one template.
type Template struct {
	Template string `json:"template"`
	Revision string `json:"revision,omitempty"` // "" of one that does not exist any more
	Tally
}

// Status is the pods of one owner.
type Status struct {
	Namespace string `json:"namespace"`
	Owner
	// Restart: kubectl rollout restart takes this owner, and it would help. Hold: why it
	// would not, of an owner that it takes and whose pods are not as they should be.
	Restart bool   `json:"restart"`
	Hold    string `json:"hold,omitempty"`
	Tally
	Templates []Template `json:"templates"`
	Reasons   []Reason   `json:"reasons,omitempty"`
	Mistakes  []Mistake  `json:"mistakes,omitempty"`
}

// NewReport begins a report about a set of templates.
func NewReport(set *templates.Set) *Report {
	r := &Report{commands: Commands{"pillion status", "pillion status unlabelled", "pillion explain", "kubectl"}, Namespaces: []Namespace{}, Templates: []Template{}, Owners: []Status{}, Mutators: []Mutator{}, Validators: []Validator{}}
	for _, t := range set.Templates {
		r.Templates = append(r.Templates, Template{Template: t.Name, Revision: t.Revision})
	}
	return r
}

// Add takes a namespace that was counted to its end, and its owners resolved.
func (r *Report) Add(c *Count) {
	r.Pods.merge(&c.pods)
	r.Namespaces = append(r.Namespaces, Namespace{c.scope.Namespace.Name, c.pods})
	r.labels = append(r.labels, c.scope.Namespace.Labels)
	r.mistaken += c.mistaken
	r.Notes = append(r.Notes, c.notes...)
	r.Failing = append(r.Failing, c.failing...)
	for _, name := range sorted(c.byName) {
		i := slices.IndexFunc(r.Templates, func(t Template) bool { return t.Template == name })
		if i < 0 {
			i, r.Templates = len(r.Templates), append(r.Templates, Template{Template: name})
		}
		r.Templates[i].merge(c.byName[name])
	}
	for o, g := range c.owners {
		s := Status{Namespace: c.scope.Namespace.Name, Owner: o, Tally: g.pods, Reasons: g.reasons, Mistakes: g.mistakes}
		if held := g.held(); o.resource() != "" && len(g.reasons) > 0 {
			s.Restart, s.Hold = held == "", held
		}
		for _, t := range r.Templates {
			if tally := g.byName[t.Template]; tally != nil {
				s.Templates = append(s.Templates, Template{t.Template, t.Revision, *tally})
			}
		}
		slices.SortStableFunc(s.Reasons, compareReasons)
		slices.SortFunc(s.Mistakes, func(a, b Mistake) int { return strings.Compare(a.Template+" "+a.Why, b.Template+" "+b.Why) })
		r.Owners = append(r.Owners, s)
	}
}

func compareReasons(a, b Reason) int {
	states := explain.States()
	return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), strings.Compare(a.Template, b.Template),
		strings.Compare(a.Why, b.Why))
}

// Misplace adds what is misplaced in a workload, given as JSON.
func (r *Report) Misplace(injector *inject.Injector, object []byte) error {
	all, err := misplaced(injector, object)
	r.Misplaced = append(r.Misplaced, all...)
	return err
}

// Labels are those of the namespaces that were looked at.
func (r *Report) Labels() []map[string]string { return r.labels }

// Finish orders the report and sums it up.
func (r *Report) Finish() {
	slices.SortFunc(r.Namespaces, func(a, b Namespace) int { return strings.Compare(a.Namespace, b.Namespace) })
	slices.SortFunc(r.Owners, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), compareOwners(a.Owner, b.Owner))
	})
	if why := slices.Concat(r.Problems, r.Doubts); len(why) > 0 {
		for i := range r.Owners {
			if s := &r.Owners[i]; s.Restart || s.Hold != "" {
				s.Restart, s.Hold = false, why[0]
			}
		}
	}
	slices.SortFunc(r.Outside, func(a, b Outside) int { return strings.Compare(a.Namespace, b.Namespace) })
	slices.SortFunc(r.Failing, func(a, b Failing) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), compareOwners(a.Owner, b.Owner))
	})
	r.Misplaced = sortMisplaced(r.Misplaced)
	r.Summary = r.summary() + r.mistakes() + misplacedIn(r.Misplaced) + r.fails() + "."
}

func (r *Report) mistakes() string {
	switch r.mistaken {
	case 0:
		return ""
	case 1:
		return "; 1 requests something that does not exist"
	}
	return fmt.Sprintf("; %d request something that does not exist", r.mistaken)
}

func (r *Report) fails() string {
	switch len(r.Failing) {
	case 0:
		return ""
	case 1:
		return "; one owner cannot create its pods"
	}
	return fmt.Sprintf("; %d owners cannot create their pods", len(r.Failing))
}

func (r *Report) summary() string {
	p := &r.Pods
	wanted := p.Pods - p.NotWanted
	where := explain.Plural(len(r.Namespaces), "namespace")
	switch {
	case len(r.Namespaces) == 0:
		return "No namespace and no pod has opted in"
	case p.Pods == 0:
		return fmt.Sprintf("There is no pod in %s", where)
	case wanted == 0 && p.Pods == 1:
		return fmt.Sprintf("The only pod in %s should not be injected", where)
	case wanted == 0:
		return fmt.Sprintf("None of the %d pods in %s should be injected", p.Pods, where)
	case p.Current == wanted && r.mistaken == 0 && len(r.Problems)+len(r.Doubts)+len(r.Failing)+len(r.Misplaced) == 0:
		return fmt.Sprintf("No problems: %s in %s, of which %d should be injected, and all of these are current", explain.Plural(p.Pods, "pod"), where, wanted)
	}
	var parts []string
	for _, s := range []explain.State{explain.Current, explain.Missing, explain.Altered, explain.Outdated} {
		if n := *p.of(s); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return fmt.Sprintf("%s in %s, of which %d should be injected: %s", explain.Plural(p.Pods, "pod"), where, wanted, strings.Join(parts, ", "))
}

// Restarts are the owners to restart, each as arguments of kubectl rollout restart.
func (r *Report) Restarts() []string {
	var all []string
	for i := range r.Owners {
		if s := &r.Owners[i]; s.Restart {
			all = append(all, "-n "+s.Namespace+" "+s.resource())
		}
	}
	return all
}
