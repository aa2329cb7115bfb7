// SPDX-License-Identifier: Apache-2.0

package uninject

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// subtraction finds the paths in a pod at which it has exactly what a template renders.
type subtraction struct {
	pod         *jsontree.Node
	added       *inject.Additions
	paths, kept []string               // to remove, and to keep as the pod's own
	own         func(path string) bool // whether the original pod had the same value as the template
	ownStays    bool                   // whether list items of app containers are kept if they precede other items
	inApp       bool                   // while an app container is compared
	original    *jsontree.Node         // the pod with its author's order of keys, or nil
	joined      []string               // names that all templates together list in [inject.SafeToEvictLocalVolumes]
}

// subtractAll compares the pod with what the template adds to app containers, and with its fragment.
func (s *subtraction) subtractAll() {
	s.inApp = true
	elem := schema.Pod().At("spec").At("containers").Elem
	for _, app := range s.added.Apps {
		existing := &s.pod.At("spec", app.List).Items()[app.Index]
		for j := range app.Fragments {
			s.subtractObject(existing, &app.Fragments[j], elem, "/spec/"+app.List+"/"+strconv.Itoa(app.Index))
		}
	}
	s.inApp = false
	s.subtractObject(s.pod, s.added.Fragment, schema.Pod(), "")
}

// subtractObject records the members of an object of the fragment that the pod's object has. At is the path of the pod's object.
func (s *subtraction) subtractObject(pod, fragment *jsontree.Node, in *schema.Schema, at string) {
	members := fragment.Members()
	for i := range members {
		name, value := members[i].Name(), &members[i]
		f, there := in.At(name), pod.Get(name)
		at := at + "/" + jsontree.Escape(name)
		switch {
		case there == nil || there.Kind() != value.Kind():
		case at == schema.AnnotationPath(inject.SafeToEvictLocalVolumes):
			s.takeJoined(there, fragment, at)
		case f.Shape == schema.Unit:
			if f.Contains(there, value) {
				s.takePath(at, s.isBeforeOwn(at, fragment))
			}
		case value.Kind() == jsontree.Array:
			s.subtractList(there, value, f.Schema, at)
		default:
			s.subtractObject(there, value, f.Schema, at)
		}
	}
}

// takeJoined records the path of the annotation SafeToEvictLocalVolumes, if each volume in it is listed by this template or another
// one. Otherwise, its author has listed volumes, and it stays.
func (s *subtraction) takeJoined(there, fragment *jsontree.Node, at string) {
	names := append(inject.SplitNames(fragment.Get(inject.SafeToEvictLocalVolumes).Text()), s.joined...)
	if !slices.ContainsFunc(inject.SplitNames(there.Text()), func(name string) bool { return !slices.Contains(names, name) }) {
		s.takePath(at, s.isBeforeOwn(at, fragment))
	}
}

// joinedBy returns the names that templates list in SafeToEvictLocalVolumes.
func joinedBy(all []*inject.Additions) (names []string) {
	for _, added := range all {
		names = append(names, inject.SplitNames(added.Fragment.At("metadata", "annotations", inject.SafeToEvictLocalVolumes).Text())...)
	}
	return names
}

func (s *subtraction) subtractList(pod, fragment *jsontree.Node, in *schema.Schema, at string) {
	if in.Elem.GoType == schema.HostAliasType() {
		s.subtractHostAliases(pod.Items(), fragment.Items(), at)
		return
	}
	items, theirs := fragment.Items(), pod.Items()
	// The loop runs from the end. An item of the pod's own has been seen if before is true: the item found next precedes it, or is in
	// another order than the fragment's. Next is the index of the last item that was found.
	before, next := false, len(items)
	for j := range slices.Backward(theirs) {
		at, found := at+"/"+strconv.Itoa(j), false
		for i := range items {
			switch {
			case in.Shape == schema.Set && in.Elem.Contains(&theirs[j], &items[i]) && in.Elem.Contains(&items[i], &theirs[j]):
				found, before, next = true, before || i >= next, i
			case in.Shape != schema.KeyedList || !in.SameKey(&theirs[j], &items[i]):
			case in.Elem.GoType == schema.ContainerType():
				s.subtractObject(&theirs[j], new(new(jsontree.Arena).Without(&items[i], "name")), in.Elem, at)
			case in.Elem.Contains(&theirs[j], &items[i]):
				found, before, next = true, before || i >= next, i
			}
		}
		if found {
			s.takePath(at, before && s.ownStays && s.inApp)
		}
		before = before || !found
	}
}

// subtractHostAliases records the items that the engine adds (mergeHostAlias). Such an item has the names of an item of the fragment that no
// other item of the pod with the same address has. The search begins at the end, because the pod's own items come first.
func (s *subtraction) subtractHostAliases(theirs, items []jsontree.Node, at string) {
	taken := map[int]bool{}
	has := func(ip *jsontree.Node, name string) bool {
		for k := range theirs {
			if !taken[k] && theirs[k].Get("ip").SameText(ip) && slices.ContainsFunc(theirs[k].Get("hostnames").Items(), func(n jsontree.Node) bool { return n.IsText(name) }) {
				return true
			}
		}
		return false
	}
	for j := range slices.Backward(theirs) {
		for i := range items {
			ip, names, own := items[i].Get("ip"), items[i].Get("hostnames").Items(), theirs[j].Get("hostnames").Items()
			among := func(n jsontree.Node) bool {
				return slices.ContainsFunc(names, func(m jsontree.Node) bool { return m.SameText(&n) })
			}
			if taken[j] || !theirs[j].Get("ip").SameText(ip) || slices.ContainsFunc(own, func(n jsontree.Node) bool { return !among(n) }) {
				continue
			}
			taken[j] = true
			rest := func(n jsontree.Node) bool {
				return !slices.ContainsFunc(own, func(m jsontree.Node) bool { return m.SameText(&n) }) && !has(ip, n.Text())
			}
			if taken[j] = !slices.ContainsFunc(names, rest); taken[j] {
				s.takePath(at+"/"+strconv.Itoa(j), false)
			}
		}
	}
}

// takePath records a path to remove, or to keep if own reports that its value is the pod's own.
func (s *subtraction) takePath(at string, own bool) {
	switch {
	case s.own(withContainerName(s.pod, at)):
	case own:
		s.kept = append(s.kept, at)
	default:
		s.paths = append(s.paths, at)
	}
}

// isBeforeOwn reports whether a label or annotation precedes one of the pod's own in the file of its author. Then it is the pod's own,
// too, because Pillion adds keys at the end.
func (s *subtraction) isBeforeOwn(at string, fragment *jsontree.Node) bool {
	object, ok := strings.CutPrefix(at[:strings.LastIndexByte(at, '/')], "/metadata/")
	if !ok || s.original == nil {
		return false
	}
	name, found := schema.Unescape(at[strings.LastIndexByte(at, '/')+1:]), false
	members := s.original.At("metadata", object).Members()
	for i := range members {
		switch key := members[i].Name(); {
		case key == name:
			found = true
		case found && s.pod.At("metadata", object).Get(key) != nil && fragment.Get(key) == nil:
			return true
		}
	}
	return false
}
