// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Comparison compares pods by two sets of templates.
type Comparison struct {
	from, to *inject.Injector
	fits     *limits.Evaluator
	pairs    []pair
	differ   map[string]bool             // IDs of templates that differ
	only     map[string]*inject.Injector // the old set with the new revision of one template, by the template's ID
	diffs    map[string]*Diff            // the diff of the first of all workloads with the same changes, by the changes as JSON
}

// New returns a Comparison of two sets. Fits checks the limits of namespaces.
func New(from, to *inject.Injector, fits *limits.Evaluator) *Comparison {
	c := &Comparison{from: from, to: to, fits: fits, pairs: pairTemplates(from.All(), to.All()), differ: map[string]bool{}, only: map[string]*inject.Injector{}, diffs: map[string]*Diff{}}
	for _, p := range c.pairs {
		if p.hasChanged() {
			c.differ[p.template().ID()] = true
		}
	}
	return c
}

// NewReport returns an empty report.
func (c *Comparison) NewReport() *Report { return newReport(c.pairs) }

// Workload is what new pods are made from.
type Workload struct {
	Owner

	// Pods is the number of its pods.
	Pods int
	// Request has the pod template, or a pod without what was injected.
	Request inject.Request
	// Limits returns the LimitRanges and quotas of the namespace. It is called only if the pods change, and may be nil.
	Limits func() limits.Limits
	// Lenient is set if Pillion's validating webhook is not called for the pods, so that Pillion denies none.
	Lenient bool
}

// side is the new pod of a workload by one of the two sets of templates.
type side struct {
	injector  *inject.Injector // for the namespace
	decisions map[string]*inject.Decision
	pod       []byte // the final pod
	denied    []inject.Finding
}

func newSide(i *inject.Injector, w *Workload) (*side, error) {
	i = i.For(w.Request.Namespace.Name)
	result, err := i.Inject(w.Request)
	if err != nil {
		return nil, err
	}
	s := &side{injector: i, decisions: map[string]*inject.Decision{}, pod: result.InjectedJSON()}
	for k, t := range i.Set().Templates {
		s.decisions[t.ID()] = &result.Decisions[k]
	}
	if w.Lenient {
		return s, nil
	}
	final := w.Request
	final.Object, final.Pod = s.pod, nil
	verdict, err := inject.NewJudge(i, nil, true).Judge(final)
	if err != nil {
		return nil, err
	}
	for k := range verdict.Judged {
		if f := verdict.Judged[k]; verdict.Denied && f.Mode == v1alpha1.Deny {
			s.denied = append(s.denied, f)
		}
	}
	return s, nil
}

// hasTemplate reports whether the pod has a template.
func (s *side) hasTemplate(id string) bool {
	return s.decisions[id] != nil && s.decisions[id].Code.Succeeded()
}

// failsTemplate reports whether the pod should have a template and cannot.
func (s *side) failsTemplate(id string) bool {
	return s.decisions[id] != nil && s.decisions[id].Code.Failed()
}

// Compare compares the new pods of a workload. It returns nil if they are the same.
func (c *Comparison) Compare(w *Workload) (*Outcome, error) {
	from, err := newSide(c.from, w)
	if err != nil {
		return nil, err
	}
	to, err := newSide(c.to, w)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Owner: w.Owner, Pods: w.Pods}
	changes, err := c.findChanges(from, to)
	if err != nil {
		return nil, err
	}
	if err := c.addEffects(o, w, from, to, changes); err != nil {
		return nil, err
	}
	c.addRejections(o, w, from, to)
	if len(o.Effects) == 0 {
		return nil, nil //nolint:nilnil // there is no outcome
	}
	if len(changes) > 0 {
		o.diff, err = c.renderDiff(o, changes, from, to)
	}
	return o, err
}

// renderDiff returns the diff of the changes. It renders the first of several workloads with the same changes.
func (c *Comparison) renderDiff(o *Outcome, changes []rollout.Change, from, to *side) (*Diff, error) {
	text, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	key := string(text)
	if c.diffs[key] == nil {
		c.diffs[key] = newDiff(o.Namespace+"/"+o.String(), from.pod, to.pod)
	}
	return c.diffs[key], nil
}

// findChanges returns how two final pods differ.
func (c *Comparison) findChanges(from, to *side) ([]rollout.Change, error) {
	if bytes.Equal(from.pod, to.pod) {
		return nil, nil
	}
	all, err := rollout.Changes(from.pod, to.pod, slices.Concat(to.injector.Set().Templates, from.injector.Set().Templates)...)
	if err != nil || c.fits.SameQoS(from.pod, to.pod) {
		return all, err
	}
	for i := range all { // the API server rejects a resize that changes the class
		if all[i].How == rollout.Resize {
			all[i].How = rollout.NewPod
		}
	}
	return all, nil
}

// addEffects finds out what happens to each template in the pod.
func (c *Comparison) addEffects(o *Outcome, w *Workload, from, to *side, changes []rollout.Change) error {
	all, fields := rollout.NewPod, []string(nil)
	if len(changes) > 0 { // a template that takes the place of another one may change pods in place
		if all, fields = worstChange(changes); all == rollout.NewPod {
			fields = nil // all that the template has
		}
	}
	for _, p := range c.pairs {
		id := p.template().ID()
		switch had, has := from.hasTemplate(id), to.hasTemplate(id); {
		case has && !had:
			o.addEffect(Effect{Template: id, Effect: Gets, How: all, Fields: fields})
		case had && !has:
			o.addEffect(Effect{Template: id, Effect: Loses, How: all, Fields: fields, Why: whyNot(to.decisions[id])})
		case has && c.differ[id]:
			own, err := c.ownChanges(id, w, from, changes)
			if err != nil {
				return err
			}
			if len(own) > 0 {
				how, fields := worstChange(own)
				o.addEffect(Effect{Template: id, Effect: Changes, How: how, Fields: fields})
			}
		case to.failsTemplate(id) && !from.failsTemplate(id):
			o.addEffect(Effect{Template: id, Effect: Fails, Why: whyNot(to.decisions[id])})
		}
	}
	return nil
}

// whyNot returns why a pod does not get a template.
func whyNot(d *inject.Decision) string {
	if d == nil {
		return "the template is removed"
	}
	return fmt.Sprintf("%s: %s", d.Code, d.Sentence())
}

// ownChanges returns the changes of a pod that one of the differing templates causes. If it is the only template that differs, these are
// all changes. If not, it compares the pod with what the pod would be if only this template differed.
func (c *Comparison) ownChanges(id string, w *Workload, from *side, changes []rollout.Change) ([]rollout.Change, error) {
	differ := 0
	for _, p := range c.pairs {
		if t := p.template(); p.hasChanged() && (t.Namespace == "" || t.Namespace == w.Request.Namespace.Name) {
			differ++
		}
	}
	if differ == 1 {
		return changes, nil
	}
	injector := c.only[id]
	if injector == nil {
		var all []*templates.Template
		for _, p := range c.pairs {
			switch {
			case p.template().ID() == id:
				all = append(all, p.to)
			case p.from != nil:
				all = append(all, p.from)
			}
		}
		set, _ := templates.Join(&templates.Set{Templates: all})
		injector = c.from.With(set)
		c.only[id] = injector
	}
	lenient := *w
	lenient.Lenient = true
	alone, err := newSide(injector, &lenient)
	if err != nil {
		return nil, err
	}
	return c.findChanges(from, alone)
}

// worstChange returns the most disruptive way of the changes, and the fields that change. If some need a new pod, it returns
// only these.
func worstChange(changes []rollout.Change) (how rollout.How, fields []string) {
	how = rollout.Record
	for i := range changes {
		if changes[i].How.Rank() > how.Rank() {
			how = changes[i].How
		}
	}
	for i := range changes {
		if field := changes[i].String(); (changes[i].How == how || how != rollout.NewPod && changes[i].How != rollout.Record) && !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	return how, fields
}

// addRejections finds out whether new pods are rejected by the new set only, and by what.
func (c *Comparison) addRejections(o *Outcome, w *Workload, from, to *side) {
	switch {
	case len(to.denied) > 0 && len(from.denied) > 0:
		return
	case len(to.denied) > 0:
		for _, f := range to.denied {
			o.rejectPods("Pillion", strings.TrimPrefix(f.String(), f.Template+": "), c.idOf(f.Template, w), o.Pods)
		}
		return
	case len(from.denied) > 0:
		for _, f := range from.denied {
			o.addEffect(Effect{Template: c.idOf(f.Template, w), Effect: Accepted, By: "Pillion"})
		}
	}
	if bytes.Equal(from.pod, to.pod) {
		return
	}
	var limits limits.Limits
	if w.Limits != nil {
		limits = w.Limits()
	}
	o.replacement = c.fits.Replace(w.Request.Namespace.Labels, limits, from.pod, to.pod)
	if o.replacement.By != "" {
		o.rejectPods(o.replacement.By, o.replacement.Why, "", o.Pods)
		return
	}
	if back := c.fits.Replace(w.Request.Namespace.Labels, limits, to.pod, from.pod); back.By != "" {
		o.acceptPods(back.By)
	}
}

// idOf returns the ID of a template by its name, or "" for none.
func (c *Comparison) idOf(name string, w *Workload) string {
	for _, p := range c.pairs {
		if t := p.template(); t.Name == name && (t.Namespace == "" || t.Namespace == w.Request.Namespace.Name) {
			return t.ID()
		}
	}
	return ""
}
