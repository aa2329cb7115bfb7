// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// appAdditions returns what is added to each app container of a list.
func (m *mutation) appAdditions(list string) (all []addition) {
	for i := range m.each {
		if list == "containers" || m.each[i].initContainers {
			at := place{`/spec/` + list + `/" + string(i) + "`, "app containers", "Object.spec." + list}
			all = append(all, m.mergeNode(&m.each[i].add, appVariable, at)...)
		}
	}
	return all
}

// podAdditions returns what is added to the pod.
func (m *mutation) podAdditions() (all []addition) {
	for _, part := range []string{"metadata", "spec"} {
		all = append(all, m.mergeNode(m.pod.get(part), "object."+part, place{"/" + part, part, "Object." + part})...)
	}
	return append(all, m.containerInsertions()...)
}

// containerInsertions returns the operations that insert the template's containers. The last container is
// inserted first, so that no index depends on earlier insertions.
func (m *mutation) containerInsertions() []addition {
	var first, last []addition
	for i := range m.containers {
		c := &m.containers[i]
		index := m.backIndex(c.list)
		if c.first {
			index = m.frontIndex(c.list, m.containers[:i])
		}
		at := place{fmt.Sprintf(`/spec/%s/" + string(%s) + "`, c.list, index), "the container " + c.name, "Object.spec." + c.list}
		// A container with that name is the template's own only if it is in the right list and the
		// pod's annotation records an injection.
		other := containerLists()[1-slices.Index(containerLists(), c.list)]
		free := fmt.Sprintf("!variables.%s.exists(x, x.name == %[3]q) && (variables.injected || !variables.%[2]s.exists(x, x.name == %[3]q))", other, c.list, c.name)
		a := addition{at, "variables." + c.variable, c.celValue(at.name), c.path, c.whenPresent(free)}
		if c.first {
			first = append(first, a)
		} else {
			last = append(last, a)
		}
	}
	all := append(first, last...)
	for _, list := range containerLists() {
		if m.pod.get("spec", list) != nil {
			at := place{at: "/spec/" + list}
			all = append(all, addition{place: at, when: "!has(object.spec." + list + ")", value: "[]"})
		}
	}
	slices.Reverse(all)
	return all
}

// frontIndex returns the index after the containers that earlier templates, or this one from earlier in
// its own list, put at the front. The API server runs policies in any order, so the result must not
// depend on which one was first.
func (m *mutation) frontIndex(list string, own []newContainer) string {
	names := ifMarked(m.set.Templates[:slices.Index(m.set.Templates, m.t)])
	for _, c := range own {
		if c.first {
			names = append(names, quoteString(c.name))
		}
	}
	if len(names) == 0 {
		return "0"
	}
	return fmt.Sprintf("(variables.%[1]s.transformList(i, x, !(x.name in [%[2]s]), i) + [size(variables.%[1]s)])[0]", list, strings.Join(names, ", "))
}

// backIndex returns the index before the containers that later templates put at the end.
func (m *mutation) backIndex(list string) string {
	names := ifMarked(m.set.Templates[slices.Index(m.set.Templates, m.t)+1:])
	if len(names) == 0 {
		return fmt.Sprintf("size(variables.%s)", list)
	}
	return fmt.Sprintf("([0] + variables.%s.transformList(i, x, !(x.name in [%s]), i + 1)).max()", list, strings.Join(names, ", "))
}

// ifMarked returns optional items of a list: the names of the templates' containers that the pod
// marks as theirs.
func ifMarked(all []*templates.Template) (names []string) {
	for _, t := range all {
		for _, name := range t.Containers {
			names = append(names, "?"+optionalValue("variables."+markedVariable(t), quoteString(name)))
		}
	}
	return names
}
