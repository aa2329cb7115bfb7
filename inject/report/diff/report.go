// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// Report is what would change for new pods. Its JSON is a stable format for scripts (README.md): fields may be
// added, but not renamed or removed.
type Report struct {
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Compared counts all pods and owners that were compared, and Changed those for which something changes.
	Changed  Count `json:"changed"`
	Compared Count `json:"compared"`
	// Templates are the templates that differ or whose effects differ, in the order in which they are applied, followed
	// by the templates that only the old set has.
	Templates []Template `json:"templates"`
	// Owners are those for which something changes.
	Owners []*Outcome `json:"owners"`
	Diffs  []*Diff    `json:"diffs"`
	// Problems are reasons why the report is incomplete. Notes are facts about it. Both are sentences.
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`

	ledgers map[string]*limits.Ledger // by namespace
}

// Count is a number of pods and of their owners.
type Count struct {
	Pods   int `json:"pods"`
	Owners int `json:"owners"`
}

func (c *Count) addOwner(pods int) { c.Pods, c.Owners = c.Pods+pods, c.Owners+1 }

// Template is what happens to one template.
type Template struct {
	// Template is "" for pods that are rejected for none.
	Template string `json:"template"`
	// From and To are the revisions. They are "" for a new or removed template.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`

	Gets     Count `json:"gets"`
	Loses    Count `json:"loses"`
	Changes  Count `json:"changes"`
	InPlace  Count `json:"inPlace"` // part of Changes
	NewPod   Count `json:"newPod"`  // part of Changes
	Rejected Count `json:"rejected"`
	Accepted Count `json:"accepted"`
	Fails    Count `json:"fails"`
	// Causes are the different effects, with the number of pods for each.
	Causes []Cause `json:"causes,omitempty"`
}

// Cause is an effect for a number of pods.
type Cause struct {
	Effect  Kind        `json:"effect"`
	How     rollout.How `json:"how,omitempty"`
	Fields  []string    `json:"fields,omitempty"`
	By      string      `json:"by,omitempty"`
	Why     string      `json:"why,omitempty"`
	Example string      `json:"example"` // one owner: NAMESPACE/KIND/NAME
	Count
}

// newReport returns an empty report.
func newReport(pairs []pair) *Report {
	r := &Report{Templates: []Template{}, Owners: []*Outcome{}, Diffs: []*Diff{}, ledgers: map[string]*limits.Ledger{}}
	for _, p := range pairs {
		t := Template{Template: p.template().ID()}
		if p.from != nil {
			t.From = p.from.Revision
		}
		if p.to != nil {
			t.To = p.to.Revision
		}
		r.Templates = append(r.Templates, t)
	}
	return r
}

// Compare adds workloads that were compared, and the outcome for each that changes.
func (r *Report) Compare(compared Count, outcomes []*Outcome) {
	r.Compared.Pods += compared.Pods
	r.Compared.Owners += compared.Owners
	for _, o := range outcomes {
		r.addOutcome(o)
	}
}

func (r *Report) addOutcome(o *Outcome) {
	if r.ledgers[o.Namespace] == nil {
		r.ledgers[o.Namespace] = &limits.Ledger{}
	}
	if n, by, why := r.ledgers[o.Namespace].Take(o.replacement, o.Pods); n > 0 {
		o.rejectPods(by, why, "", n)
	}
	if o.diff != nil {
		if len(o.diff.Owners) == 0 {
			o.diff.index = len(r.Diffs)
			r.Diffs = append(r.Diffs, o.diff)
		}
		o.diff.Owners = append(o.diff.Owners, o.Namespace+"/"+o.String())
		o.diff.Pods += o.Pods
		o.Diff = new(o.diff.index)
	}
	r.Owners = append(r.Owners, o)
	if slices.ContainsFunc(o.Effects, func(e Effect) bool { return e.Effect != Fails }) {
		r.Changed.addOwner(o.Pods)
	}
	for i := range o.Effects {
		r.countEffect(o, &o.Effects[i])
	}
}

// countEffect adds an effect to its template.
func (r *Report) countEffect(o *Outcome, e *Effect) {
	at := slices.IndexFunc(r.Templates, func(t Template) bool { return t.Template == e.Template })
	if at < 0 {
		at, r.Templates = len(r.Templates), append(r.Templates, Template{Template: e.Template})
	}
	t := &r.Templates[at]
	t.countOf(e.Effect).addOwner(e.Pods)
	if e.Effect == Changes && e.How == rollout.NewPod {
		t.NewPod.addOwner(e.Pods)
	} else if e.Effect == Changes {
		t.InPlace.addOwner(e.Pods)
	}
	k := slices.IndexFunc(t.Causes, func(c Cause) bool {
		return c.Effect == e.Effect && c.How == e.How && c.By == e.By && c.Why == e.Why && slices.Equal(c.Fields, e.Fields)
	})
	if k < 0 {
		k = len(t.Causes)
		t.Causes = append(t.Causes, Cause{Effect: e.Effect, How: e.How, Fields: e.Fields, By: e.By, Why: e.Why, Example: o.Namespace + "/" + o.String()})
	}
	t.Causes[k].addOwner(e.Pods)
}

func (t *Template) countOf(k Kind) *Count {
	return map[Kind]*Count{Gets: &t.Gets, Loses: &t.Loses, Changes: &t.Changes, Rejected: &t.Rejected, Accepted: &t.Accepted, Fails: &t.Fails}[k]
}

// Finish removes templates that stay the same, sorts the report and sets the summary.
func (r *Report) Finish() {
	r.Templates = slices.DeleteFunc(r.Templates, func(t Template) bool { return t.From == t.To && len(t.Causes) == 0 })
	for i := range r.Templates {
		slices.SortStableFunc(r.Templates[i].Causes, func(a, b Cause) int {
			return cmp.Or(cmp.Compare(slices.Index(effectKinds(), a.Effect), slices.Index(effectKinds(), b.Effect)), cmp.Compare(a.How.Rank(), b.How.Rank()), cmp.Compare(b.Pods, a.Pods), strings.Compare(a.Why, b.Why))
		})
	}
	slices.SortFunc(r.Owners, func(a, b *Outcome) int { return CompareOwners(a.Owner, b.Owner) })
	r.Summary = r.summary()
}

// effectKinds returns the effects in the order of the report.
func effectKinds() []Kind { return []Kind{Rejected, Accepted, Gets, Loses, Changes, Fails} }

func (r *Report) summary() string {
	of := fmt.Sprintf("%s of %s", explain.Plural(r.Compared.Pods, "pod"), explain.Plural(r.Compared.Owners, "workload"))
	if r.Compared.Owners == 0 && len(r.Problems) > 0 {
		return "Nothing could be compared."
	}
	if r.Changed.Owners == 0 {
		return "Nothing changes for new pods (" + of + " compared)."
	}
	return fmt.Sprintf("New pods change: %s of %s (%s compared).", explain.Plural(r.Changed.Pods, "pod"), explain.Plural(r.Changed.Owners, "workload"), of)
}
