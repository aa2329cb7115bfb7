// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// Plan returns what a running pod needs. Owner is the object that has created it, with a pod
// template, or nil if that is unknown.
func (p *Planner) Plan(pod, owner []byte) (*Pod, error) {
	m := &meta{}
	if err := json.Unmarshal(pod, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotAPod, err)
	}
	out := newPod(p.Namespace.Name, m)
	if !m.counts() {
		return out, nil
	}
	states, err := p.states(pod)
	if err != nil {
		return nil, err
	}
	out.State = worst(p.related(states))
	written := managersOf(m.Metadata.CreationTimestamp.Time, m.Metadata.ManagedFields)
	if !out.State.IsBehind() && !written.wrote() {
		return out, nil
	}
	if t := p.unknown(p.related(states)); t != "" {
		return out.leave(explain.ByRequest(t)), nil
	}
	if why := p.invalid(p.related(states)); why != "" {
		return out.leave(why), nil
	}
	if out.doc, err = decode(pod); err != nil {
		return nil, err
	}
	target, why, err := p.target(pod, owner)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return out.leave(why), nil
	}
	states, others := p.divide(states, target)
	out.State = worst(states)
	if out.Changes, err = p.changes(pod, target, written); err != nil {
		return nil, err
	}
	if why := p.narrow(out, states, others); why != "" {
		return out.leave(why), nil
	}
	left, err := p.remnants(out, target, written)
	if err != nil {
		return nil, err
	}
	out.Changes = append(out.Changes, left...)
	if !out.State.IsBehind() {
		// Only what an interrupted rollout has changed is to be undone.
		out.Changes = slices.DeleteFunc(out.Changes, func(c Change) bool { return c.How != InPlace && c.How != Resize })
	}
	out.Own, out.notCalled = p.own(out.doc, states), p.Called != nil && !p.Called(target.base)
	out.keep(written)
	if !out.State.IsBehind() {
		// Another webhook may have set the other fields when the pod was created, and a pod with a user's change is current.
		out.Kept = nil
		out.Changes = slices.DeleteFunc(out.Changes, func(c Change) bool { return !written.wroteField(&c) })
	}
	if err := p.decide(out, target); err != nil || !p.Added || out.Action != Patch {
		return out, err
	}
	if why := out.written(written); why != "" {
		out.leave(why)
	}
	return out, nil
}

// keep takes out the changes of fields that others have changed. The resources of a container belong
// together, because a request may not exceed its limit.
func (o *Pod) keep(written managers) {
	whose := map[string]Kept{}
	key := func(c *Change) string {
		if !c.ofResources() {
			return c.Path
		}
		list, name, _ := c.container()
		return list + "/" + name
	}
	for i := range o.Changes {
		c := &o.Changes[i]
		if c.How != InPlace && !c.ofResources() {
			continue
		}
		if by, sure := written.changedBy(c); by != "" || !sure {
			whose[key(c)] = Kept{By: by, Sure: sure && by != ""}
		}
	}
	o.Changes = slices.DeleteFunc(o.Changes, func(c Change) bool {
		kept, ok := whose[key(&c)]
		if kept.Change = c; ok {
			o.Kept = append(o.Kept, kept)
		}
		return ok
	})
}

// decide chooses the action.
func (p *Planner) decide(o *Pod, t *target) error {
	for i := range o.Changes {
		c := &o.Changes[i]
		if c.How == Resize && !p.Resizes {
			c.How = NewPod
			o.Why = "the API server cannot resize running sidecars"
		}
		if c.How == NewPod && o.Action != Replace {
			o.Action = Replace
			if o.Why == "" {
				o.Why = c.reason()
			}
		}
		if c.How == Record {
			o.record(c)
		}
	}
	if len(o.Kept) > 0 { // the pod is not as its record would say
		o.Records = map[string]string{}
		o.Changes = slices.DeleteFunc(o.Changes, func(c Change) bool { return c.How == Record })
	}
	switch {
	case o.Action == Replace && o.notCalled:
		o.leave(o.Why + ", but the API server would not call Pillion for a new pod")
	case o.Action == Replace && len(o.Kept) > 0:
		o.leave(fmt.Sprintf("%s; only a new pod gets the rest (%s), so delete this one if the change is no longer needed", o.Kept[0].String(), o.Why))
	case o.Action == Replace:
		return p.outlook(o, t)
	case len(o.Changes) == 0 && len(o.Kept) > 0:
		o.leave(o.Kept[0].String())
	case len(o.Changes) > 0:
		o.Action = Patch
		return p.foresee(o, t)
	case o.State.IsBehind():
		o.Action, o.Why = Replace, "it is "+string(o.State)+", and its own containers are as they should be"
		return p.outlook(o, t)
	}
	return nil
}

// outlook leaves a pod if a new one would not be current either, for example because the pod template of its owner has a
// record that Pillion did not write. Otherwise each run would replace it again.
func (p *Planner) outlook(o *Pod, t *target) error {
	states, err := p.states(t.pod)
	if err != nil {
		return err
	}
	states, _ = p.divide(states, t)
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if s := states[name]; s.IsBehind() {
			o.leave(fmt.Sprintf("the template %s would be %s in a new pod too", name, s))
			return nil
		}
	}
	return nil
}

// foresee checks that the pod is current after its changes, except for fields that stay.
func (p *Planner) foresee(o *Pod, t *target) error {
	if len(o.Kept) > 0 {
		o.Why = o.Kept[0].String()
		return nil
	}
	after, err := o.after()
	if err != nil {
		return err
	}
	states, err := p.states(after)
	if err != nil {
		return err
	}
	states, _ = p.divide(states, t)
	if s := worst(states); s.IsBehind() {
		o.Action, o.Why = Replace, "it would be "+string(s)+" after a change in place"
		return p.outlook(o, t)
	}
	return nil
}
