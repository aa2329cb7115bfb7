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
	if !m.isConsidered() {
		return out, nil
	}
	states, err := p.statesOf(pod)
	if err != nil {
		return nil, err
	}
	out.State = worstState(p.relatedStates(states))
	written := managersOf(m.Metadata.CreationTimestamp.Time, m.Metadata.ManagedFields)
	if !out.State.IsBehind() && !written.wroteContainer() {
		return out, nil
	}
	if t := p.templateByRequest(p.relatedStates(states)); t != "" {
		return out.leaveBecause(explain.ByRequest(t)), nil
	}
	if why := p.whyInvalid(p.relatedStates(states)); why != "" {
		return out.leaveBecause(why), nil
	}
	if out.doc, err = decodeObject(pod); err != nil {
		return nil, err
	}
	target, why, err := p.computeTarget(pod, owner)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return out.leaveBecause(why), nil
	}
	states, others := p.divideStates(states, target)
	out.State = worstState(states)
	if out.Changes, err = p.ownChanges(pod, target, written); err != nil {
		return nil, err
	}
	if why := p.narrowChanges(out, states, others); why != "" {
		return out.leaveBecause(why), nil
	}
	left, err := p.findRemnants(out, target, written)
	if err != nil {
		return nil, err
	}
	out.Changes = append(out.Changes, left...)
	if !out.State.IsBehind() {
		// Only what an interrupted rollout has changed is to be undone.
		out.Changes = slices.DeleteFunc(out.Changes, func(c Change) bool { return c.How != InPlace && c.How != Resize })
	}
	out.Own, out.notCalled = p.ownContainers(out.doc, states), p.Called != nil && !p.Called(target.base)
	out.keepOthersFields(written)
	if !out.State.IsBehind() {
		// Another webhook may have set the other fields when the pod was created, and a pod with a user's change is current.
		out.Kept = nil
		out.Changes = slices.DeleteFunc(out.Changes, func(c Change) bool { return !written.wroteField(&c) })
	}
	if err := p.chooseAction(out, target); err != nil || !p.Added || out.Action != Patch {
		return out, err
	}
	if why := out.whyNotAdded(written); why != "" {
		out.leaveBecause(why)
	}
	return out, nil
}

// keepOthersFields takes out the changes of fields that others have changed. The resources of a container belong
// together, because a request may not exceed its limit.
func (o *Pod) keepOthersFields(written managers) {
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

// chooseAction chooses the action.
func (p *Planner) chooseAction(o *Pod, t *target) error {
	for i := range o.Changes {
		c := &o.Changes[i]
		if c.How == Resize && !p.Resizes {
			c.How = NewPod
			o.Why = "the API server cannot resize running sidecars"
		}
		if c.How == NewPod && o.Action != Replace {
			o.Action = Replace
			if o.Why == "" {
				o.Why = c.whyNewPod()
			}
		}
		if c.How == Record {
			o.addRecord(c)
		}
	}
	if len(o.Kept) > 0 { // the pod is not as its record would say
		o.Records = map[string]string{}
		o.Changes = slices.DeleteFunc(o.Changes, func(c Change) bool { return c.How == Record })
	}
	switch {
	case o.Action == Replace && o.notCalled:
		o.leaveBecause(o.Why + ", but the API server would not call Pillion for a new pod")
	case o.Action == Replace && len(o.Kept) > 0:
		o.leaveBecause(fmt.Sprintf("%s; only a new pod gets the rest (%s), so delete this one if the change is no longer needed", o.Kept[0].String(), o.Why))
	case o.Action == Replace:
		return p.checkNewPod(o, t)
	case len(o.Changes) == 0 && len(o.Kept) > 0:
		o.leaveBecause(o.Kept[0].String())
	case len(o.Changes) > 0:
		o.Action = Patch
		return p.checkChangedPod(o, t)
	case o.State.IsBehind():
		o.Action, o.Why = Replace, "it is "+string(o.State)+", and its own containers are as they should be"
		return p.checkNewPod(o, t)
	}
	return nil
}

// checkNewPod leaves a pod if a new one would not be current either, for example because the pod template of its owner has a
// record that Pillion did not write. Otherwise each run would replace it again.
func (p *Planner) checkNewPod(o *Pod, t *target) error {
	states, err := p.statesOf(t.pod)
	if err != nil {
		return err
	}
	states, _ = p.divideStates(states, t)
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if s := states[name]; s.IsBehind() {
			o.leaveBecause(fmt.Sprintf("the template %s would be %s in a new pod too", name, s))
			return nil
		}
	}
	return nil
}

// checkChangedPod checks that the pod is current after its changes, except for fields that stay.
func (p *Planner) checkChangedPod(o *Pod, t *target) error {
	if len(o.Kept) > 0 {
		o.Why = o.Kept[0].String()
		return nil
	}
	after, err := o.afterChanges()
	if err != nil {
		return err
	}
	states, err := p.statesOf(after)
	if err != nil {
		return err
	}
	states, _ = p.divideStates(states, t)
	if s := worstState(states); s.IsBehind() {
		o.Action, o.Why = Replace, "it would be "+string(s)+" after a change in place"
		return p.checkNewPod(o, t)
	}
	return nil
}
