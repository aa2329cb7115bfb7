// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
)

// The API server runs policies in no certain order. What that could change is
// refused, or said.

// Notes say, one sentence each, which mutating policies see something else than the
// webhook would let them see: what another one adds to what their expressions read.
func Notes(set *templates.Set, o Options) []string {
	var notes []string
	for _, t := range set.Templates {
		if !o.wants(t) {
			continue
		}
		var others, parts, own []string
		for _, other := range set.Templates {
			for _, part := range added(other) {
				switch reads := slices.ContainsFunc(t.Reads(), func(read string) bool { read, _, _ = strings.Cut(read, "["); return read == "*" || read == part }); {
				case !reads:
				case other == t:
					own = append(own, part)
				default:
					others, parts = append(others, other.Name), append(parts, part)
				}
			}
		}
		if len(own) > 0 {
			notes = append(notes, fmt.Sprintf("template %s: note: its expressions read %s, to which it adds: the webhook leaves the template out if that changes what it protects, and a policy does not",
				t.Name, strings.Join(own, ", ")))
		}
		slices.Sort(parts)
		if len(others) > 0 {
			others, add := slices.Compact(others), "add"
			if len(others) == 1 {
				add = "adds"
			}
			notes = append(notes, fmt.Sprintf("template %s: note: its expressions may or may not see what other policies add, for the API server runs policies in no certain order: %s %s to %s",
				t.Name, strings.Join(others, ", "), add, strings.Join(slices.Compact(parts), ", ")))
		}
	}
	return notes
}

// added are the parts of a pod that a template adds to, by their first two fields.
func added(t *templates.Template) []string {
	m := &mutation{builder: &builder{set: templates.NewSet([]*templates.Template{t}), t: t}}
	m.pod = m.fragment(t.PodFragment(), "spec.pod")
	var parts []string
	for i, name := range m.pod.names {
		for _, field := range m.pod.children[i].names {
			parts = append(parts, name+"."+field)
		}
	}
	for _, e := range t.EachFragments() {
		parts = append(parts, "spec.containers")
		if e.InitContainers {
			parts = append(parts, "spec.initContainers")
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

// collisions refuses templates that set the same thing differently: which of
// them wins is a matter of order, and the API server runs policies in none.
func (m *mutation) collisions() {
	own := m.claims()
	for _, t := range m.set.Templates {
		if t == m.t {
			continue
		}
		other := &mutation{builder: &builder{set: m.set, t: t}}
		other.pod = other.fragment(t.PodFragment(), "spec.pod")
		other.eachNodes()
		theirs := other.claims()
		for _, c := range own {
			if i := slices.IndexFunc(theirs, func(o claim) bool { return o.what == c.what }); i >= 0 && theirs[i].value != c.value {
				m.problem(c.path, "the template %s sets %s too, and the API server runs policies in no certain order", t.Name, c.what)
			}
		}
	}
}

// claim is something that only one template can set.
type claim struct{ what, value, path string }

func (m *mutation) claims() []claim {
	var all []claim
	for _, kind := range []string{"annotations", "labels"} {
		n := m.pod.at("metadata", kind)
		for i := range n.itemsOrMembers() {
			all = append(all, claim{"the " + strings.TrimSuffix(kind, "s") + " " + n.names[i], n.children[i].text, n.children[i].path})
		}
	}
	for _, c := range m.newContainers() {
		all = append(all, claim{"the container " + c.name, c.value(reflect.TypeFor[corev1.Container](), "") + m.t.Name, c.path})
	}
	for _, c := range m.newContainers() {
		for i := range c.get("ports").items() {
			p := &c.get("ports").items()[i]
			if number := m.nodePort(p); number != nil {
				all = append(all, claim{fmt.Sprintf("the port %s/%s of the node", number.text, strings.Trim(portProtocol(p), `"`)), m.t.Name, number.path})
			}
		}
	}
	volumes := m.pod.at("spec", "volumes").items()
	for i := range volumes {
		all = append(all, claim{"the volume " + unquoted(volumes[i].get("name")), volumes[i].value(reflect.TypeFor[corev1.Volume](), ""), volumes[i].path})
	}
	for i := range m.each {
		for field, key := range map[string]string{"env": "name", "volumeMounts": "mountPath"} {
			items := m.each[i].add.get(field).items()
			for j := range items {
				if k := items[j].get(key); k.constant {
					all = append(all, claim{
						field + " " + unquoted(k) + " of app containers",
						items[j].value(fieldType(reflect.TypeFor[corev1.Container](), field).Elem(), ""), items[j].path,
					})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b claim) int { return strings.Compare(a.path, b.path) })
	return all
}
