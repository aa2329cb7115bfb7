// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// object merges an object of the fragment key by key.
func (p *planner) object(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	members := fragment.Members()
	for i := range members {
		name, value := members[i].Name(), &members[i]
		if value.Kind() == tree.Null {
			continue
		}
		f, there := s.At(name), pod.Get(name)
		if f.GoType == schema.ResourcesType() && p.mayShare(there) {
			rest, _ := p.subject.withoutShared(value)
			value = &rest
		}
		if p.excluded(pod, f, name, value) || there == nil && p.allExcluded(value, f.Schema) {
			p.leaveExcluded(at.Member(name), there, value)
			continue
		}
		if value = p.withoutLeft(pod, value, s); value == nil {
			continue
		}
		if there == nil && p.hasDefault(pod, f, value, at.Member(name)) {
			continue
		}
		p.member(pod, there, f, value, at.Member(name))
	}
}

// hasDefault reports whether the API server writes a value into an absent field of an object that no template has added. It
// does so before it calls a webhook, so that value stays, as any value of the pod does. A pod in a file does not have it yet.
func (p *planner) hasDefault(object *tree.Node, f *schema.Field, value *tree.Node, at schema.Pointer) bool {
	if object.IsNew() || p.merged.IsNew() {
		return false
	}
	there := f.Default(object)
	switch {
	case there == nil:
		return false
	case f.Contains(there, value):
		p.found = true
	default:
		p.kept = append(p.kept, Kept{newDifference(at.String(), there, value), ""})
	}
	return true
}

// allExcluded reports whether a new object would stay empty because all of its fields are excluded.
func (p *planner) allExcluded(fragment *tree.Node, s *schema.Schema) bool {
	members := fragment.Members()
	for i := range members {
		if name := members[i].Name(); !p.excluded(nil, s.At(name), name, &members[i]) {
			return false
		}
	}
	return len(members) > 0
}

func (p *planner) excluded(pod *tree.Node, f *schema.Field, name string, value *tree.Node) bool {
	return schema.Excludes(pod, p.subject.pod, f, name, value) ||
		f.Gated && (p.subject.asked.alone || p.wasInjected)
}

// member merges a value of the fragment into there, the pod's member with the same name, or nil.
func (p *planner) member(pod, there *tree.Node, f *schema.Field, value *tree.Node, at schema.Pointer) {
	name := value.Name()
	switch {
	case there == nil && f.AbsentIsZero && schema.IsZero(value):
		return
	case f.Shape == schema.Unit && (there == nil || value.Kind() == tree.Array && isEmptyList(there)):
		p.add(pod, name, *value, at)
	case f.Shape == schema.Unit:
		if f.Contains(there, value) {
			p.found = true
		} else {
			p.keepUnit(there, value, f, at)
		}
	case there != nil && there.Kind() != value.Kind():
		p.conflict(at, there, value, "the pod's %s has the wrong type; correct it", at.String())
	case len(value.Items()) == 0 && value.Kind() == tree.Array:
		return
	case f.Shape == schema.KeyedList || f.Shape == schema.Set:
		if there == nil || isEmptyList(there) {
			there = p.add(pod, name, tree.Items(p.subject.nodes.Nodes(len(value.Items()))...), at)
		}
		p.list(there, value, f.Schema, at)
	case f.GoType == schema.ResourcesType() && there != nil:
		p.resources(there, value, f.Schema, at)
	case there == nil:
		before := len(p.added)
		p.object(p.add(pod, name, tree.Members(p.subject.nodes.Nodes(len(value.Members()))...), at), value, f.Schema, at)
		if len(p.added) > before { // report the object as one addition
			p.added = append(p.added[:before], newDifference(at.String(), nil, value))
		}
	default:
		p.object(there, value, f.Schema, at)
	}
}

// list inserts the items with new keys.
func (p *planner) list(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	items := fragment.Items()
	for i := range items {
		value := &items[i]
		if s.Key == "name" && s.Elem.GoType == schema.ContainerType() {
			p.container(pod, value, s, at)
			continue
		}
		if s.Elem.GoType == schema.VolumeType() && p.isClaim(value) {
			p.conflict(at, nil, value, "a claim of the StatefulSet's volumeClaimTemplates replaces the volume %s; rename the claim", value.Get("name").Text())
			continue
		}
		if s.Elem.GoType == schema.HostAliasType() {
			p.hostAlias(pod, value, at)
			continue
		}
		found := -1
		if s.Shape == schema.KeyedList {
			found = p.subject.find(s, pod, value)
		}
		switch {
		case found >= 0:
			p.known(&pod.Items()[found], value, s, at.Item(pod.Items(), found))
		case s.Shape == schema.Set && s.Elem.Among(pod.Items(), value):
			p.found = true
		default:
			p.insert(pod, len(pod.Items()), *value, at)
		}
	}
}

// hostAlias adds the names that the pod has for no item with the address. Several items with one address are valid, and the
// kubelet writes a line of /etc/hosts for each.
func (p *planner) hostAlias(pod, value *tree.Node, at schema.Pointer) {
	there, known := map[string]bool{}, false
	items := pod.Items()
	for i := range items {
		if items[i].Get("ip").SameText(value.Get("ip")) {
			known = true
			for _, name := range items[i].Get("hostnames").Items() {
				there[name.Text()] = true
			}
		}
	}
	names := value.Get("hostnames").Items()
	rest := make([]tree.Node, 0, len(names))
	for i := range names {
		if !there[names[i].Text()] {
			rest = append(rest, names[i])
		}
	}
	switch {
	case len(rest) == 0 && known:
		p.found = true
	case known && p.subject.asked.written:
		p.noteLeft("its hostAliases for " + value.Get("ip").Text() + " are left to the webhook, because kubectl merges items with the same address")
	case len(rest) == len(names):
		p.insert(pod, len(items), *value, at)
	default:
		p.insert(pod, len(items), tree.Members(tree.Field("ip", *value.Get("ip")), tree.Field("hostnames", tree.Items(rest...))), at)
	}
}

// known handles an item whose key the pod already has. The pod's item stays. If it is something
// different, the rest of the fragment would not work, so there is a conflict.
func (p *planner) known(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	if s.Elem.GoType == schema.VolumeType() {
		if p.subject.sameVolume(pod, fragment, s.Elem, at) {
			p.found = true
		} else {
			p.otherVolume(pod, fragment, at)
		}
		return
	}
	if s.Elem.Contains(pod, fragment) && (s.Elem.GoType != schema.VolumeMountType() || !otherFiles(pod, fragment)) {
		p.found = true
		return
	}
	switch s.Elem.GoType {
	case schema.EnvVarType():
		if p.inApp {
			p.keepVariable(pod, fragment, s, at)
			return
		}
		p.keepItem(pod, fragment, s, at)
	case schema.VolumeMountType():
		if there := pod.Get("name").Text(); there != fragment.Get("name").Text() {
			if other := p.contributor(func(c *candidate) bool { return c.mounts(pod) }); other != "" {
				p.conflict(at, pod, fragment, "the template %s mounts another volume (%s) at %s; change the path in one of the templates", other, there, pod.Get("mountPath").Text())
				return
			}
			p.conflict(at, pod, fragment, "another volume (%s) is mounted at %s; mount that volume at another path", there, pod.Get("mountPath").Text())
			return
		}
		fallthrough
	default:
		p.keepItem(pod, fragment, s, at)
	}
}

// otherVolume is the conflict with another volume of the same name.
func (p *planner) otherVolume(pod, fragment *tree.Node, at schema.Pointer) {
	name := fragment.Get("name").Text()
	if other := p.contributor(func(c *candidate) bool { return c.brings(name) }); other != "" {
		p.conflict(at, pod, fragment, "the template %s adds a different volume named %s; rename it in one of the templates", other, name)
		return
	}
	p.conflict(at, pod, fragment, "the pod has a different volume named %s; rename it in the pod", name)
}

// resources adds the resources that neither the requests nor the limits of the pod name. Otherwise
// a request of the template could exceed a limit of the pod.
func (p *planner) resources(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	said := func(name string) bool {
		return pod.At("requests", name) != nil || pod.At("limits", name) != nil
	}
	free := *fragment
	for _, section := range []string{"requests", "limits"} {
		members := fragment.Get(section).Members()
		for i := range members {
			name := members[i].Name()
			if !said(name) {
				continue
			}
			there := pod.At(section, name)
			if !s.At(section).Elem.Contains(there, &members[i]) {
				if there == nil {
					p.leaveExcluded(at.Member(section).Member(name), nil, &members[i])
				} else {
					p.keepUnit(there, &members[i], s.At(section).Elem.AsField(), at.Member(section).Member(name))
				}
			}
			free = p.subject.nodes.With(&free, section, p.subject.nodes.Without(free.Get(section), name))
		}
	}
	p.object(pod, &free, s, at)
}

// mayShare reports whether the pod may have had resources of its own when it was injected, for which
// the containers were left without. Without the feature gate PodLevelResources, the API server drops
// those of the pod before the validating webhook sees it.
func (p *planner) mayShare(resources *tree.Node) bool {
	if !p.subject.asked.alone || !p.wasInjected {
		return false
	}
	for _, section := range []string{"requests", "limits"} {
		if slices.ContainsFunc(resources.Get(section).Members(), func(m tree.Node) bool { return isShared(m.Name()) }) {
			return false
		}
	}
	return true
}
