// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// origin is the pod that a final pod may have been before templates were injected: the
// pod without what these templates bring. Which containers, variables or volumes they
// bring is known without an expression, so it does not matter what these give by now.
type origin struct {
	*Injector
	recorded []*loaded
	served   bool // by an API server
	// containersOnly: all but the templates' containers was there.
	containersOnly bool
	customized     bool                // containers that the pod customizes were there and were filled in
	keep           map[*tree.Node]bool // what stays, although a template brings the like
	left           map[*tree.Node]bool // the members and items of the final pod that are left out
	emptied        map[*tree.Node]bool // the members of which nothing stays
	opened         map[*tree.Node]bool // the members and items of which something stays
	own            map[string][]*tree.Node
	brought        map[string]bool
	each           map[string][]*tree.Node // for the containers of a list
	null           *tree.Node
}

// recordedIn are the templates that the pod says were injected by their revision here.
func (i *Injector) recordedIn(pod *tree.Node) []*loaded {
	var all []*loaded
	annotations := pod.At("metadata", "annotations")
	for _, t := range i.templates {
		if annotations.Get(t.injected).IsText(t.Revision) {
			all = append(all, t)
		}
	}
	return all
}

// of returns the pod without what the templates bring.
func (o *origin) of(pod *tree.Node) tree.Node {
	o.left, o.emptied, o.opened = map[*tree.Node]bool{}, map[*tree.Node]bool{}, map[*tree.Node]bool{}
	o.brought, o.each, o.own = map[string]bool{}, map[string][]*tree.Node{}, map[string][]*tree.Node{}
	o.null, _ = tree.Parse([]byte("null"))
	o.served = served(pod)
	var fragments []*tree.Node
	nodes := new(tree.Arena)
	for _, t := range o.recorded {
		fragment := tree.Members()
		if !o.containersOnly {
			fragment = o.outline(t.PodFragment())
		}
		metadata := orElse(fragment.Get("metadata"), new(tree.Members()))
		annotations := nodes.With(orElse(metadata.Get("annotations"), new(tree.Members())), t.injected, *o.null)
		fragment = nodes.With(&fragment, "metadata", nodes.With(metadata, "annotations", annotations))
		fragments = append(fragments, &fragment)
		o.noteContainers(t, &fragment, o.customized && pod.At("metadata", "annotations", t.customize).IsText("true"))
		for _, each := range t.EachFragments() {
			if o.containersOnly {
				break
			}
			add := o.outline(each.Add)
			o.each["containers"] = append(o.each["containers"], &add)
			if each.InitContainers {
				o.each["initContainers"] = append(o.each["initContainers"], &add)
			}
		}
	}
	none := tree.Members(tree.Field("spec", tree.Members(tree.Field("volumes", tree.Items(noToken())))))
	return o.object(pod, o.schema, append(fragments, &none))
}

// noteContainers notes which containers are the template's, or else are the pod's own
// and were filled in.
func (o *origin) noteContainers(t *loaded, fragment *tree.Node, customized bool) {
	if !customized {
		for _, name := range t.Containers {
			o.brought[name] = true
		}
		return
	}
	for _, list := range containerLists() {
		items := fragment.At("spec", list).Items()
		for i := range items {
			name := items[i].Get("name").Text()
			o.own[name] = append(o.own[name], new(new(tree.Arena).Without(&items[i], "name")))
		}
	}
}

// outline is what is known of a fragment without the pod: null stands for a value that
// is computed.
func (o *origin) outline(f templates.Fragment) tree.Node {
	if s := f.Static(); s != nil {
		return *s
	}
	switch {
	case f.IsObject():
		n := tree.Members()
		for name, child := range f.Children() {
			n.Set(name, o.outline(child))
		}
		return n
	case f.IsList():
		n := tree.Items()
		for _, child := range f.Children() {
			n.Append(o.outline(child))
		}
		return n
	}
	return *o.null
}

func (o *origin) object(n *tree.Node, s *schema, fragments []*tree.Node) tree.Node {
	members := n.Members()
	rest := tree.Members(make([]tree.Node, 0, len(members))...)
	for i := range members {
		m, within := &members[i], len(o.left)
		if value, ok := o.value(m, s.at(m.Name()), valuesOf(fragments, m.Name())); ok {
			rest.Set(m.Name(), value)
			o.opened[m] = len(o.left) > within
		} else if len(o.left) > within {
			o.emptied[m] = true
		} else {
			o.leaveOut(m)
		}
	}
	return rest
}

func (o *origin) leaveOut(n *tree.Node) {
	o.left[n] = true
}

// valuesOf are the members of that name, null too.
func valuesOf(fragments []*tree.Node, name string) []*tree.Node {
	var all []*tree.Node
	for _, fragment := range fragments {
		members := fragment.Members()
		for i := range members {
			if members[i].Name() == name {
				all = append(all, &members[i])
			}
		}
	}
	return all
}

// value is what stays of a value, and whether anything does.
func (o *origin) value(n *tree.Node, f *field, fragments []*tree.Node) (rest tree.Node, ok bool) {
	if o.keep[n] || len(fragments) == 0 && (f.shape != keyedList || f.elem.goType != container()) {
		return *n, true
	}
	switch {
	case f.shape == keyedList || f.shape == set:
		rest = o.list(n, f, fragments)
	case f.shape != unit:
		rest = o.object(n, f.schema, fragments)
	default:
		return *n, !slices.ContainsFunc(fragments, func(fragment *tree.Node) bool {
			return fragment.Kind() == tree.Null || f.contains(n, fragment)
		})
	}
	return rest, !isZero(&rest) || isZero(n) || o.served && f.parent != nil && writtenEmpty(f.parent.Name()+"."+n.Name())
}

// writtenEmpty are the objects that an API server writes even if nothing is in them.
func writtenEmpty(place string) bool {
	return place == "PodSpec.securityContext" || place == "Container.resources"
}

func (o *origin) list(n *tree.Node, f *field, fragments []*tree.Node) tree.Node {
	items := n.Items()
	rest := tree.Items(make([]tree.Node, 0, len(items))...)
	for i := range items {
		item := &items[i]
		switch {
		case o.keep[item]:
			rest.Append(*item)
		case f.elem.goType == container():
			if o.brought[item.Get("name").Text()] {
				o.leaveOut(item)
				continue
			}
			within := len(o.left)
			rest.Append(o.container(item, f, n.Name()))
			o.opened[item] = len(o.left) > within
		case slices.ContainsFunc(fragments, func(fragment *tree.Node) bool { return brings(f, fragment, item) }):
			o.leaveOut(item)
		default:
			rest.Append(*item)
		}
	}
	return rest
}

func (o *origin) container(item *tree.Node, f *field, list string) tree.Node {
	fragments := slices.Concat(o.each[list], o.own[item.Get("name").Text()])
	if item.Kind() != tree.Object || len(fragments) == 0 {
		return *item
	}
	return o.object(item, f.elem, fragments)
}

// brings reports whether a list of a fragment has an item, as far as the fragment is known.
func brings(f *field, fragment, item *tree.Node) bool {
	items := fragment.Items()
	if f.shape == set {
		return slices.ContainsFunc(items, func(own tree.Node) bool { return f.elem.contains(item, &own) })
	}
	found := f.find(items, item)
	return found >= 0 && f.elem.contains(item, &items[found])
}
