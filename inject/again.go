// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/tree"
)

// A final pod is right if injecting it again would add nothing, and also if it is just
// what injecting made of it. These differ if expressions read what templates add: a
// condition may not hold any more, and an expression may give something else or fail.
// So before Pillion finds fault with a template's work, it does the work again, with the
// pod as it was before. Forging a record gains nothing: a pod that passes is one that
// the mutating webhook makes, by the templates that the pod has records of alone.

const (
	// maxAgain bounds how often injecting is tried again for one pod.
	maxAgain = 4
	// maxAgainSize is the size, in bytes, of the largest pod that is injected again. A tenant can have this
	// work done for any pod, so it must cost little; and pods that run are smaller.
	maxAgainSize = 64 << 10
)

// madeBy returns what was decided when the templates whose records the pod has were
// injected, or nil if injecting does not make such a pod. What the pod was like before is a
// guess where it may have had of its own what a template brings, so there are several.
func (i *Injector) madeBy(req Request, recorded []*loaded, now []Decision) ([]Decision, error) {
	customized := slices.ContainsFunc(recorded, func(t *loaded) bool { return req.Pod.At("metadata", "annotations", t.customize).IsText("true") })
	all := &origin{Injector: i, recorded: recorded, keep: map[*tree.Node]bool{}}
	guesses := []*origin{
		all, all, all, // what injecting did not bring again was the pod's own
		{Injector: i, recorded: recorded, containersOnly: true},
	}
	if customized && !slices.ContainsFunc(now, func(d Decision) bool { return len(d.Altered) > 0 }) {
		guesses = append(guesses, &origin{Injector: i, recorded: recorded, customized: true})
	}
	for k, o := range guesses {
		if k > 0 && o == guesses[k-1] && len(o.keep) == 0 {
			continue // it would be the same
		}
		if *req.again == 0 {
			return nil, nil
		}
		*req.again--
		r, err := i.madeOf(o, req)
		if r != nil || err != nil {
			return r, err
		}
	}
	return nil, nil
}

// madeOf is madeBy for one guess. It notes in that what to keep in the next one.
func (i *Injector) madeOf(o *origin, req Request) ([]Decision, error) {
	before := o.of(req.Pod)
	if len(i.recordedIn(&before)) > 0 {
		return nil, nil // a record would prove itself
	}
	again := req
	again.Object, again.Pod, again.Scratch, again.alone = before.AppendTo(nil), nil, nil, false
	if len(again.Object) > maxAgainSize {
		return nil, nil
	}
	r, err := i.Inject(again)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(r.Decisions, func(d Decision) bool { return d.Code == CodeInjected && !isOneOf(o.recorded, d.Template) }) {
		return nil, nil // without its record it is not this pod; and what it protects was not compared
	}
	req.Scratch = &Scratch{}
	m := &made{run: i.newRun(&req, req.Pod), origin: o}
	same := m.same(req.Pod, r.pod, i.schema.asField(), false)
	if same && len(m.lost) == 0 && m.keeps(o.recorded, r.pod) {
		return o.asPresent(r.Decisions), nil
	}
	for _, n := range m.lost {
		if o.keep != nil {
			o.keep[n] = same
		}
	}
	return nil, nil
}

// asPresent are the decisions for the pod that they made.
func (o *origin) asPresent(decisions []Decision) []Decision {
	for i := range decisions {
		if d := &decisions[i]; d.Code == CodeInjected && isOneOf(o.recorded, d.Template) {
			d.Code, d.Added, d.Altered = CodePresent, nil, nil
		}
	}
	return decisions
}

// made compares a final pod with one that was made again.
type made struct {
	*run
	origin *origin
	lost   []*tree.Node // of what was left out before: what injecting did not bring again, or another
}

// same reports whether the final pod has all that was added to n, or all of n; what it has
// and n has not is noted as lost.
func (m *made) same(final, n *tree.Node, f *field, all bool) bool {
	var came, added, left []*tree.Node
	ours, theirs, same := children(n), children(final), true
	for i := range ours {
		if all || ours[i].Added() {
			added = append(added, &ours[i])
		} else {
			came = append(came, &ours[i])
		}
	}
	for i := range theirs {
		their := &theirs[i]
		switch {
		case m.origin.left[their]:
			left = append(left, their)
		case m.origin.emptied[their]:
			other := new(tree.Node)
			if k := slices.IndexFunc(added, func(n *tree.Node) bool { return n.Name() == their.Name() }); k >= 0 {
				other = added[k]
				added = slices.Delete(added, k, k+1)
			}
			same = m.same(their, other, f.at(their.Name()), true) && same
		case len(came) == 0 || came[0].Name() != their.Name():
			return false
		default:
			if m.origin.opened[their] || came[0].AddedSize() > 0 {
				same = m.same(their, came[0], f.child(final, their), false) && same
			}
			came = came[1:]
		}
	}
	return len(came) == 0 && m.sameAdded(left, added, f, final) && same
}

func children(n *tree.Node) []tree.Node {
	if n.Kind() == tree.Array {
		return n.Items()
	}
	return n.Members()
}

// child is the place of a member or item of n.
func (f *field) child(n, of *tree.Node) *field {
	if n.Kind() == tree.Object {
		return f.at(of.Name())
	}
	return f.elem.asField()
}

// sameAdded compares what was added with what was left out of the final value, apart from
// what the API server may drop.
func (m *made) sameAdded(left, added []*tree.Node, f *field, final *tree.Node) bool {
	same, object, matched := true, final.Kind() == tree.Object, make([]bool, len(left))
	for i, value := range added {
		in := f.child(final, value)
		isIt := func(other *tree.Node) bool {
			if object {
				return other.Name() == value.Name()
			}
			return f.shape == set && in.contains(other, value) && in.contains(value, other) || f.shape == keyedList && f.sameKey(other, value)
		}
		k := i // nearly always
		if k >= len(left) || !isIt(left[k]) {
			k = slices.IndexFunc(left, isIt)
		}
		switch {
		case k >= 0 && m.sameValue(left[k], value, in):
			matched[k] = true
		case k < 0 && (!object || !in.droppable(value) && (!in.absentIsZero || !isZero(value))):
			same = false
		}
	}
	for k, other := range left {
		if !matched[k] {
			m.lost = append(m.lost, other)
			same = same && f.child(final, other).goType != container() // which are never a template's and the pod's own
		}
	}
	return same
}

// sameValue reports whether the final pod has a value that was added, with no more than
// Kubernetes' defaults. Containers may have more: what is protected is compared by itself.
func (m *made) sameValue(final, value *tree.Node, f *field) bool {
	if f.goType == container() {
		return f.contains(final, value)
	}
	return comparison{candidate: &candidate{run: m.run}, f: f, name: value.Name()}.find(final, value) == nil
}

// keeps reports whether what the templates protect in their containers is as it was made.
func (m *made) keeps(recorded []*loaded, pod *tree.Node) bool {
	for _, t := range recorded {
		c := &candidate{run: m.run, t: t}
		spec := tree.Members()
		for _, list := range containerLists() {
			own := tree.Items()
			items := pod.At("spec", list).Items()
			for i := range items {
				if slices.Contains(t.Containers, items[i].Get("name").Text()) {
					own.Append(items[i])
				}
			}
			spec.Set(list, own)
		}
		if c.fragment = tree.Members(tree.Field("spec", spec)); len(c.altered()) > 0 {
			return false
		}
	}
	return true
}
