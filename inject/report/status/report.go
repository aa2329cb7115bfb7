// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates"
)

// Report is the state of all inspected pods. Its JSON is a stable format for scripts
// (README.md): fields may be added, but not renamed or removed.
type Report struct {
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Pods counts all pods, each by the worst state of its templates: missing, altered,
	// outdated, current.
	Pods       Tally       `json:"pods"`
	Namespaces []Namespace `json:"namespaces"`
	// Templates are in the order in which they are applied, followed by those that no longer
	// exist.
	Templates []Template `json:"templates"`
	Owners    []Status   `json:"owners"`
	// Mutators are other webhooks and policies that change new pods.
	Mutators []Mutator `json:"mutators"`
	// Validators are other webhooks and policies that validate new pods.
	Validators []Validator `json:"validators"`
	// Problems are problems of Pillion itself. Doubts are unknown facts that may affect new pods.
	// If there are any of either, the report suggests no restarts.
	Problems []string `json:"problems,omitempty"`
	Doubts   []string `json:"doubts,omitempty"`
	// Failing are the owners that cannot create all their pods, or lose them, with the reason.
	Failing []Failing `json:"failing,omitempty"`
	// Misplaced are the workloads with labels or annotations in places that Pillion does not read.
	Misplaced []Misplaced `json:"misplaced,omitempty"`
	// Outside are the namespaces that the user named and that have not opted in, with the
	// reason. Unlabelled is the number of namespaces that could opt in, if the user named none.
	Outside    []Outside `json:"outside,omitempty"`
	Unlabelled int       `json:"unlabelled,omitempty"`
	// Notes are sentences about namespaces, and about what could not be inspected.
	Notes []string `json:"notes,omitempty"`
	// Stopped is the number of automatic rollouts that have stopped. The notes have the reasons.
	Stopped int `json:"stopped,omitempty"`

	// Unread is set if no template can be read.
	Unread bool `json:"unread,omitempty"`

	commands  Commands            // commands that the report suggests
	labels    []map[string]string // labels of the namespaces, in order
	uncounted bool                // pods of some namespaces could not be counted
	mistaken  int                 // number of pods that request unknown templates or parameters
	without   []without           // pods without a sidecar, in namespaces that the user named
}

// without is how many pods of a namespace that opted in get no sidecar.
type without struct {
	namespace string
	pods      int
	example   string // the name of one of them
}

// Run sets the commands that the report suggests.
func (r *Report) Run(c Commands) {
	r.commands = c
	for i := range r.Outside {
		r.Outside[i].setCommand(c, r.Problems)
	}
	for i := range r.Failing {
		c.Foreign = r.Unread
		r.Failing[i].setAdvice(c.Help)
	}
}

// MissPods adds the reason why pods are not counted, one sentence.
func (r *Report) MissPods(why string) { r.uncounted, r.Problems = true, append(r.Problems, why) }

// Name adds details about a namespace that the user named, after [Report.Add].
func (r *Report) Name(c *Count, known Known) {
	if o := NewOutside(&c.scope, known); o != nil {
		r.Outside = append(r.Outside, *o)
	} else if c.pods.NotWanted > 0 {
		r.without = append(r.without, without{c.scope.Namespace.Name, c.pods.NotWanted, r.unexplainedPod(c)})
	}
}

// unexplainedPod returns the name of a pod that gets no sidecar, preferably of an owner about which the report has nothing
// else.
func (r *Report) unexplainedPod(c *Count) (example string) {
	for _, o := range c.sortedOwners() {
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

// Namespace counts the pods of one namespace.
type Namespace struct {
	Namespace string `json:"namespace"`
	Tally
}

// Template counts the pods by their state for one template.
type Template struct {
	Template string `json:"template"`
	Revision string `json:"revision,omitempty"` // "" for a template that no longer exists
	Tally
}

// Status counts the pods of one owner.
type Status struct {
	Namespace string `json:"namespace"`
	Owner
	// Restart reports whether kubectl rollout restart supports this owner and would help. If the
	// owner is supported and its pods are not right, Hold is the reason why it would not help.
	Restart bool   `json:"restart"`
	Hold    string `json:"hold,omitempty"`
	// InPlace reports whether pillion rollout would change pods of the owner in place.
	InPlace bool `json:"inPlace"`
	Tally
	Templates []Template       `json:"templates"`
	Reasons   []explain.Reason `json:"reasons,omitempty"`
	Mistakes  []Mistake        `json:"mistakes,omitempty"`
}

// NewReport returns an empty report about a set of templates.
func NewReport(set *templates.Set) *Report {
	commands := Commands{
		Help: explain.Help{Kubectl: "kubectl"}, Status: "pillion status", Unlabelled: "pillion status unlabelled", Explain: "pillion explain", Rollout: "pillion rollout --dry-run",
	}
	r := &Report{commands: commands, Namespaces: []Namespace{}, Templates: []Template{}, Owners: []Status{}, Mutators: []Mutator{}, Validators: []Validator{}}
	for _, t := range set.Templates {
		r.Templates = append(r.Templates, Template{Template: t.ID(), Revision: t.Revision})
	}
	return r
}

// Add adds a namespace after all its pods were counted and their owners resolved.
func (r *Report) Add(c *Count) {
	r.Pods.mergeTally(&c.pods)
	r.Namespaces = append(r.Namespaces, Namespace{c.scope.Namespace.Name, c.pods})
	r.labels = append(r.labels, c.scope.Namespace.Labels)
	r.mistaken += c.mistaken
	r.Notes = append(r.Notes, c.notes...)
	r.Failing = append(r.Failing, c.failing...)
	for _, name := range sortedKeys(c.byName) {
		i := slices.IndexFunc(r.Templates, func(t Template) bool { return t.Template == name })
		if i < 0 {
			i, r.Templates = len(r.Templates), append(r.Templates, Template{Template: name})
		}
		r.Templates[i].mergeTally(c.byName[name])
	}
	for o, g := range c.owners {
		s := Status{Namespace: c.scope.Namespace.Name, Owner: o, Tally: g.pods, Reasons: g.reasons, Mistakes: g.mistakes}
		if held := g.holdReason(); o.restartArgument() != "" && len(g.reasons) > 0 {
			s.Restart, s.Hold = held == "", held
		}
		s.InPlace = g.changesInPlace(o)
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

func compareReasons(a, b explain.Reason) int {
	states := explain.States()
	return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), strings.Compare(a.Template, b.Template),
		strings.Compare(a.Why, b.Why))
}

// Misplace adds the findings about a workload's own metadata. The object is JSON.
func (r *Report) Misplace(injector *inject.Injector, object []byte) error {
	all, err := findMisplaced(injector, object)
	r.Misplaced = append(r.Misplaced, all...)
	return err
}

// Labels returns the labels of the inspected namespaces.
func (r *Report) Labels() []map[string]string { return r.labels }

// Finish sorts the report and sets the summary.
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
	lose := 0
	for i := range r.Failing {
		if r.Failing[i].losesPods() {
			lose++
		}
	}
	r.Summary = r.summary() +
		summaryPart(r.mistaken, "1 requests something that it does not get", "%d request something that they do not get") +
		summaryPart(misplacedOwners(r.Misplaced), "1 workload has labels or annotations in the wrong place", "%d workloads have labels or annotations in the wrong place") +
		summaryPart(r.Stopped, "1 automatic rollout has stopped", "%d automatic rollouts have stopped") +
		summaryPart(len(r.Failing)-lose, "one owner cannot create its pods", "%d owners cannot create their pods") +
		summaryPart(lose, "one owner loses its pods", "%d owners lose their pods") + "."
}

// summaryPart returns a part of the summary about n objects.
func summaryPart(n int, one, more string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; " + one
	}
	return "; " + fmt.Sprintf(more, n)
}

func (r *Report) summary() string {
	p := &r.Pods
	wanted := p.Pods - p.NotWanted
	where := explain.Plural(len(r.Namespaces), "namespace")
	switch {
	case r.Unread && len(r.Namespaces) > 0:
		return fmt.Sprintf("%s in %s; it is unknown which of them should be injected", explain.Plural(p.Pods, "pod"), where)
	case len(r.Namespaces) == 0 && r.uncounted:
		return "No pod could be counted"
	case len(r.Namespaces) == 0:
		return "No namespace and no pod has opted in"
	case p.Pods == 0:
		return fmt.Sprintf("There is no pod in %s", where)
	case wanted == 0 && p.Pods == 1:
		return fmt.Sprintf("The only pod in %s gets no sidecar", where)
	case wanted == 0:
		return fmt.Sprintf("None of the %d pods in %s gets a sidecar", p.Pods, where)
	case p.Current == wanted && r.mistaken == 0 && len(r.Problems)+len(r.Doubts)+len(r.Failing)+len(r.Misplaced)+r.Stopped == 0:
		return fmt.Sprintf("No problems: %s in %s, of which %d should be injected, and all of these are current", explain.Plural(p.Pods, "pod"), where, wanted)
	}
	var parts []string
	for _, s := range []explain.State{explain.Current, explain.Missing, explain.Altered, explain.Outdated} {
		if n := *p.countOf(s); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return fmt.Sprintf("%s in %s, of which %d should be injected: %s", explain.Plural(p.Pods, "pod"), where, wanted, strings.Join(parts, ", "))
}

// Restarts returns the owners to restart, each as an argument of kubectl rollout restart.
func (r *Report) Restarts() []string {
	var all []string
	for i := range r.Owners {
		if s := &r.Owners[i]; s.Restart {
			all = append(all, "-n "+s.Namespace+" "+s.restartArgument())
		}
	}
	return all
}
