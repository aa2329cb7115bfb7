// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// mergeObject merges an object of the fragment key by key.
func (p *planner) mergeObject(pod, fragment *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	members := fragment.Members()
	for i := range members {
		name, value := members[i].Name(), &members[i]
		if value.Kind() == jsontree.Null {
			continue
		}
		f := s.At(name)
		there := f.Effective(pod, pod.Get(name))
		if there != nil {
			value = f.Effective(pod, value)
		}
		if f.GoType == schema.ResourcesType() && p.mayShare(there) {
			rest, _ := p.subject.withoutShared(value)
			value = &rest
		}
		if (there == nil || f.Shape == schema.Unit) && p.isExcluded(pod, there, f, value, at.Member(name)) {
			continue
		}
		if p.isGated(f) && (there == nil || f.Shape != schema.Unit) { // the API server may have dropped it, or parts of it
			p.found = p.found || there != nil && f.Contains(there, value)
			continue
		}
		if dropped := p.droppedValue(there, f, at.Member(name)); dropped != nil {
			p.keepUnit(dropped, value, f, at.Member(name))
			continue
		}
		if there == nil && p.hasAppArmor(name, value, at.Member(name)) {
			continue
		}
		if there == nil && p.hasDefault(pod, f, value, at.Member(name)) {
			continue
		}
		left := p.tentative
		p.tentative = left || p.isLeft(there, value, s)
		p.mergeMember(pod, there, f, value, at.Member(name))
		p.tentative = left
	}
}

// hasDefault reports whether the API server writes a default into a field that is absent in an object that no template has added. The
// API server does so before it calls a webhook. The default therefore stays, like any value of the pod, although a pod in a file
// does not have it yet. If it differs from the template's value, hasDefault records a kept place.
func (p *planner) hasDefault(object *jsontree.Node, f *schema.Field, value *jsontree.Node, at schema.Pointer) bool {
	if object.IsNew() || p.merged.IsNew() {
		return false
	}
	there := f.Default(object)
	switch {
	case there == nil:
		return false
	case f.Contains(there, f.Effective(object, value)):
		p.found = true
	default:
		p.kept = append(p.kept, Kept{Difference: newDifference(at.String(), there, value)})
	}
	return true
}

// annotatedProfile returns the AppArmor profile that the container that is merged gets from an annotation of the pod, or nil.
func (p *planner) annotatedProfile() *jsontree.Node {
	if p.merged == nil || p.merged.IsNew() {
		return nil
	}
	return p.subject.appArmorOf(p.merged)
}

// hasAppArmor reports whether a field is an AppArmor profile and the container that is merged gets its profile from an annotation of
// the pod. That profile stays, as a field of the container would. If it differs, hasAppArmor records a kept place.
func (p *planner) hasAppArmor(name string, value *jsontree.Node, at schema.Pointer) bool {
	if name != appArmorField {
		return false
	}
	profile := p.annotatedProfile()
	switch {
	case profile == nil:
		return false
	case p.subject.schema.At("spec").At("securityContext").At(appArmorField).Contains(profile, value):
		p.found = true
	default:
		p.kept = append(p.kept, Kept{Difference: newDifference(at.String(), profile, value)})
	}
	return true
}

// isExcluded reports whether the API server would reject a value beside other values of the pod, so that it is not added: either the
// value itself, or each member of an object that the pod lacks. It records the conflict or the kept place. There is the pod's value
// in its place, or nil. If another template has added the same value since, the value is still excluded.
func (p *planner) isExcluded(pod, there *jsontree.Node, f *schema.Field, value *jsontree.Node, at schema.Pointer) bool {
	by := schema.Excludes(pod, p.subject.pod, f, value.Name(), value)
	if there != nil && (by == nil || f.Contains(there, value)) {
		return false
	}
	members := value.Members()
	for i := 0; by == nil && i < len(members); i++ {
		in := f.At(members[i].Name())
		if by = schema.Excludes(nil, p.subject.pod, in, members[i].Name(), &members[i]); by == nil && !p.isGated(in) && (members[i].Name() != appArmorField || p.annotatedProfile() == nil) {
			return false
		}
	}
	if by == nil {
		for i := range members {
			p.hasAppArmor(members[i].Name(), &members[i], at.Member(members[i].Name()))
		}
		return value.Kind() == jsontree.Object && (len(members) > 0 || p.mayBeEmptied(f))
	}
	p.keepExcluded(at, value, by.Value, by.Field, func(c *candidate) *jsontree.Node {
		return c.hasAt(p, at, func(object *jsontree.Node, name string) *jsontree.Node {
			if own := schema.Excludes(object, nil, f, name, value); own != nil && !by.OfPod {
				return own.Value
			}
			return nil
		})
	})
	return true
}

// isGated reports whether the API server may have dropped a field, because the pod has been injected before.
func (p *planner) isGated(f *schema.Field) bool {
	return f.Gated && (p.subject.request.alone || p.wasInjected)
}

// mayBeEmptied reports whether the API server may have dropped all of an object and then the object itself, because the pod has
// been injected before.
func (p *planner) mayBeEmptied(f *schema.Field) bool {
	return f.HasGatedField() && (p.subject.request.alone || p.wasInjected)
}

// droppedValue returns what another template renders for a gated field that the pod lacks, or nil. The pod must record that template.
// The API server may have dropped the field after that template was injected. The value still decides about this template, so that
// a second run decides as the first one.
func (p *planner) droppedValue(there *jsontree.Node, f *schema.Field, at schema.Pointer) *jsontree.Node {
	if there != nil || !f.Gated || p.merged != nil && p.merged.IsNew() {
		return nil
	}
	mayHave := func(t *loaded) bool {
		// A template of the namespace takes nothing from one of the cluster, as in findSetter.
		return (t.Namespace == "" || p.t.Namespace != "") && p.subject.isMarked(t) && p.mayHave(t, at)
	}
	for other := range p.owners.otherTemplates(p.t, false, mayHave) {
		if own := other.hasAt(p, at, (*jsontree.Node).Get); own != nil {
			return own
		}
	}
	return nil
}

// mergeMember merges a value of the fragment into an object of the pod. There is the object's member with the same name, or nil.
func (p *planner) mergeMember(pod, there *jsontree.Node, f *schema.Field, value *jsontree.Node, at schema.Pointer) {
	name := value.Name()
	switch {
	case there == nil && f.AbsentIsZero && schema.IsZero(value):
		return
	case f.Shape == schema.Unit && (there == nil || value.Kind() == jsontree.Array && isEmptyList(there)):
		p.addMember(pod, name, *value, at)
	case f.Shape == schema.Unit:
		p.keepUnit(there, value, f, at)
	case there != nil && there.Kind() != value.Kind():
		p.reportConflict(at, there, value, "the pod's %s has the wrong type; correct it", at.String())
	case len(value.Items()) == 0 && value.Kind() == jsontree.Array:
		return
	case f.Shape == schema.KeyedList || f.Shape == schema.Set:
		if there == nil || isEmptyList(there) {
			there = p.addMember(pod, name, jsontree.Items(p.subject.nodes.Nodes(len(value.Items()))...), at)
		}
		p.mergeList(there, value, f.Schema, at)
	case f.GoType == schema.ResourcesType() && there != nil:
		p.mergeResources(there, value, f.Schema, at)
	case there == nil:
		before := len(p.added)
		p.mergeObject(p.addMember(pod, name, jsontree.Members(p.subject.nodes.Nodes(len(value.Members()))...), at), value, f.Schema, at)
		if len(p.added) > before { // report the object as one addition
			p.added = append(p.added[:before], newDifference(at.String(), nil, value))
		}
	default:
		p.mergeObject(there, value, f.Schema, at)
	}
}

// mergeList inserts the items of the fragment whose keys the pod's list does not have, and merges the others.
func (p *planner) mergeList(pod, fragment *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	items := fragment.Items()
	for i := range items {
		value := &items[i]
		if s.Key == "name" && s.Elem.GoType == schema.ContainerType() {
			p.mergeContainer(pod, value, s, at)
			continue
		}
		if s.Elem.GoType == schema.VolumeType() && p.isClaim(value) {
			p.reportConflict(at, nil, value, "a claim of the StatefulSet's volumeClaimTemplates replaces the volume %s; rename the claim", value.Get("name").Text())
			continue
		}
		if s.Elem.GoType == schema.HostAliasType() {
			p.mergeHostAlias(pod, value, at)
			continue
		}
		found := -1
		if s.Shape == schema.KeyedList {
			found = p.subject.findByKey(s, pod, value)
		}
		switch {
		case found >= 0:
			p.mergeKnownItem(&pod.Items()[found], value, s, at.Item(pod.Items(), found))
		case s.Shape == schema.Set && s.Elem.Among(pod.Items(), value):
			p.found = true
		default:
			left := p.tentative
			p.tentative = left || p.isTolerationLeft(value, s.Elem) || p.isPortLeft(pod, value, s.Elem)
			p.insertItem(pod, len(pod.Items()), *value, at)
			p.tentative = left
		}
	}
}

// mergeKnownItem handles an item of the fragment whose key the pod's list already has. The pod's item stays. If that is another
// volume, or mounts another volume, the rest of the fragment would not work, so there is a conflict.
func (p *planner) mergeKnownItem(pod, fragment *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	if s.Elem.GoType == schema.VolumeType() {
		if p.subject.sameVolume(pod, fragment, s.Elem, at) {
			p.found = true
		} else {
			p.reportOtherVolume(pod, fragment, at)
		}
		return
	}
	switch s.Elem.GoType {
	case schema.EnvVarType():
		if p.inApp {
			p.keepVariable(pod, fragment, s, at)
			return
		}
	case schema.VolumeMountType():
		if p.conflictsAtPath(pod, fragment, at) {
			return
		}
	}
	p.keepItem(pod, fragment, s, at)
}

// reportOtherVolume reports the conflict with another volume of the same name.
func (p *planner) reportOtherVolume(pod, fragment *jsontree.Node, at schema.Pointer) {
	name := fragment.Get("name").Text()
	if other := p.findContributor(func(c *candidate) bool { return c.bringsVolume(name) }); other != "" {
		p.reportConflict(at, pod, fragment, "the template %s adds a different volume named %s; rename it in one of the templates", other, name)
		return
	}
	p.reportConflict(at, pod, fragment, "the pod has a different volume named %s; rename it in the pod", name)
}

// mergeResources adds the resources that neither the requests nor the limits of the pod name. Otherwise
// a request of the template could exceed a limit of the pod.
func (p *planner) mergeResources(pod, fragment *jsontree.Node, s *schema.Schema, at schema.Pointer) {
	isNamed := func(name string) bool {
		return pod.At("requests", name) != nil || pod.At("limits", name) != nil
	}
	free := *fragment
	for _, section := range []string{"requests", "limits"} {
		members := fragment.Get(section).Members()
		for i := range members {
			name := members[i].Name()
			if !isNamed(name) {
				continue
			}
			p.mergeQuantity(pod, &members[i], section, s, at)
			free = p.subject.nodes.With(&free, section, p.subject.nodes.Without(free.Get(section), name))
		}
	}
	p.mergeObject(pod, &free, s, at)
}

// mergeQuantity handles a request or a limit of the fragment for a resource of which the container has a request, a limit, or both.
func (p *planner) mergeQuantity(pod, value *jsontree.Node, section string, s *schema.Schema, at schema.Pointer) {
	name, in := value.Name(), s.At(section).Elem
	has := func(section string, there *jsontree.Node) func(c *candidate) *jsontree.Node {
		return func(c *candidate) *jsontree.Node {
			return c.hasAt(p, slices.Clone(at).Member(section), func(resources *jsontree.Node, _ string) *jsontree.Node {
				own := resources.At(section, name)
				if own == nil && section == "requests" {
					own = resources.At("limits", name) // the API server's default
				}
				if own != nil && in.Contains(there, own) {
					return own
				}
				return nil
			})
		}
	}
	if there := pod.At(section, name); there != nil {
		p.keepValue(at.Member(section).Member(name), there, value, in, has(section, there))
		return
	}
	other := "requests"
	if section == other {
		other = "limits"
	}
	if there := pod.At(other, name); section == "limits" || !in.Contains(there, value) { // otherwise the API server sets it
		p.keepExcluded(at.Member(section).Member(name), value, there, other+"."+name, has(other, there))
	}
}

// mayShare reports whether the pod may have had pod-level resources when it was injected, so that its containers got no resources
// of their own. Without the feature gate PodLevelResources, the API server drops the pod-level resources before the validating
// webhook sees the pod.
func (p *planner) mayShare(resources *jsontree.Node) bool {
	if !p.subject.request.alone || !p.wasInjected {
		return false
	}
	for _, section := range []string{"requests", "limits"} {
		if slices.ContainsFunc(resources.Get(section).Members(), func(m jsontree.Node) bool { return isShared(m.Name()) }) {
			return false
		}
	}
	return true
}

// mergeHostAlias adds an item with those names that no item of the pod has for the same address. Several items with one address are
// valid, and the kubelet writes a line of /etc/hosts for each.
func (p *planner) mergeHostAlias(pod, value *jsontree.Node, at schema.Pointer) {
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
	rest := make([]jsontree.Node, 0, len(names))
	for i := range names {
		if !there[names[i].Text()] {
			rest = append(rest, names[i])
		}
	}
	switch {
	case len(rest) == 0 && known:
		p.found = true
	default:
		if p.tentative = known && p.subject.request.written; p.tentative {
			p.noteLeft("its hostAliases for " + value.Get("ip").Text() + " are left to the webhook, because kubectl merges items with the same address")
		}
		if len(rest) < len(names) {
			value = new(jsontree.Members(jsontree.Field("ip", *value.Get("ip")), jsontree.Field("hostnames", jsontree.Items(rest...))))
		}
		p.insertItem(pod, len(items), *value, at)
		p.tentative = false
	}
}
