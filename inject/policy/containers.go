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

// newContainer is a container of the template.
type newContainer struct {
	*node
	name        string
	list        string
	variable    string // says whether it is to be added
	first       bool
	mountsToken bool // by itself
}

// newContainers are the template's in their order.
func (m *mutation) newContainers() []newContainer {
	var all []newContainer
	for _, list := range lists() {
		items := m.pod.at("spec", list).items()
		for i := range items {
			n := &items[i]
			c := newContainer{node: n, name: unquoted(n.get("name")), list: list}
			c.variable = "adds_" + identifier(c.name)
			place := m.t.Spec.Placement.Containers
			if list == "initContainers" {
				place = m.t.Spec.Placement.InitContainers
				if place == "" && unquoted(n.get("restartPolicy")) == string(corev1.ContainerRestartPolicyAlways) {
					place = templates.First
				}
			}
			c.first = place == templates.First
			for j := range n.get("volumeMounts").items() {
				c.mountsToken = c.mountsToken || unquoted(n.get("volumeMounts").items()[j].get("mountPath")) == tokenPath
			}
			all = append(all, c)
		}
	}
	return all
}

// containerOps put the template's containers where they belong.
func (m *mutation) containerOps() {
	for _, list := range lists() {
		var first, last []newContainer
		for _, c := range m.newContainers() {
			switch {
			case c.list != list:
			case c.first:
				first = append(first, c)
			default:
				last = append(last, c)
			}
		}
		if len(first)+len(last) == 0 {
			continue
		}
		m.op("!has(object.spec."+list+")", quote("/spec/"+list), "[]")
		for i := range first {
			m.insert(&first[i], m.front(list, first[:i]), first[:i])
		}
		for i := range last {
			m.insert(&last[i], m.back(list), slices.Concat(first, last[:i]))
		}
	}
}

// insert adds a container at an index of the pod's list, behind those of the
// template that are added before it.
func (m *mutation) insert(c *newContainer, index string, before []newContainer) {
	for _, other := range before {
		index += fmt.Sprintf(" + (variables.%s ? 1 : 0)", other.variable)
	}
	m.op("variables."+c.variable, fmt.Sprintf("%s + string(%s)", quote("/spec/"+c.list+"/"), index), m.container(c))
}

// front is the index behind the containers that earlier templates, or this one
// from earlier in its own list, put at the front. The API server runs policies in
// no certain order, so it must not matter which of them was first.
func (m *mutation) front(list string, own []newContainer) string {
	var names []string
	for _, c := range own {
		names = append(names, quote(c.name))
	}
	for _, t := range m.set.Templates[:slices.Index(m.set.Templates, m.t)] {
		names = append(names, ifMarked(t)...)
	}
	if len(names) == 0 {
		return "0"
	}
	return fmt.Sprintf("(variables.%[1]s.transformList(i, x, !(x.name in [%[2]s]), i) + [size(variables.%[1]s)])[0]", list, strings.Join(names, ", "))
}

// back is the index before the containers that later templates put at the end.
func (m *mutation) back(list string) string {
	var names []string
	for _, t := range m.set.Templates[slices.Index(m.set.Templates, m.t)+1:] {
		names = append(names, ifMarked(t)...)
	}
	if len(names) == 0 {
		return fmt.Sprintf("size(variables.%s)", list)
	}
	return fmt.Sprintf("([0] + variables.%s.transformList(i, x, !(x.name in [%s]), i + 1)).max()", list, strings.Join(names, ", "))
}

// ifMarked are optional items of a list: the names of a template's containers
// where the pod says that they are the template's.
func ifMarked(t *templates.Template) []string {
	var names []string
	for _, name := range t.Containers {
		names = append(names, "?"+optional(marked(t), quote(name)))
	}
	return names
}

// container is a new container in CEL: with the token's mount, and without the
// resources that a pod with resources of its own shares.
func (m *mutation) container(c *newContainer) string {
	t, name := reflect.TypeFor[corev1.Container](), "Object.spec."+c.list
	var fields []string
	mounts := itemsOf(c.get("volumeMounts").items(), func(n *node) string {
		return n.item(reflect.TypeFor[corev1.VolumeMount](), name+".volumeMounts")
	})
	if !c.mountsToken {
		mounts = append(mounts, "?"+optional(`variables.token != ""`,
			fmt.Sprintf("%s.volumeMounts{name: variables.token, readOnly: true, mountPath: %q}", name, tokenPath)))
	}
	for i, field := range c.names {
		child := &c.children[i]
		switch field {
		case "volumeMounts":
		case "resources":
			fields = append(fields, m.resources(child, name+".resources"))
		default:
			fields = append(fields, field+": "+child.value(fieldType(t, field), name+"."+field))
		}
	}
	fields = append(fields, "volumeMounts: ["+strings.Join(mounts, ", ")+"]")
	return name + "{\n    " + strings.Join(fields, ",\n    ") + "}"
}

// resources are a container's: in a pod with resources of its own (KEP-2837) the
// container shares cpu, memory and huge pages.
func (m *mutation) resources(n *node, name string) string {
	t := reflect.TypeFor[corev1.ResourceRequirements]()
	reduced, changed := *n, false
	for _, section := range []string{"requests", "limits"} {
		s := reduced.get(section)
		if s == nil {
			continue
		}
		less := s.without(shared)
		changed = changed || len(less.names) < len(s.names)
		reduced = reduced.without(func(name string) bool { return name == section })
		if len(less.names) > 0 {
			reduced.names, reduced.children = append(reduced.names, section), append(reduced.children, less)
		}
	}
	full := n.value(t, name)
	switch {
	case !changed:
		return "resources: " + full
	case len(reduced.names) == 0:
		return "?resources: " + optional("!variables.podResources", full)
	}
	return fmt.Sprintf("resources: variables.podResources ? %s : %s", reduced.value(t, name), full)
}

func shared(name string) bool {
	return name == "cpu" || name == "memory" || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

// appOps add to the containers that the user wrote.
func (m *mutation) appOps() {
	for i := range m.each {
		e := &m.each[i]
		for _, list := range lists() {
			if list == "initContainers" && !e.initContainers {
				continue
			}
			var ops []string
			for _, field := range []string{"env", "volumeMounts", "envFrom"} {
				ops = append(ops, m.appField(e, list, field)...)
			}
			m.apps = append(m.apps, fmt.Sprintf("variables.%s.transformList(i, %s, %s, [\n%s\n]).flatten()",
				list, appVariable, m.isApp(e.where), strings.Join(ops, ",\n")))
		}
	}
}

// appField gives the operations for one list of an app container.
func (m *mutation) appField(e *eachNode, list, field string) []string {
	n := e.add.get(field)
	if n == nil {
		return nil
	}
	at := fmt.Sprintf("%s + string(i) + %s", quote("/spec/"+list+"/"), quote("/"+field))
	t, name := fieldType(reflect.TypeFor[corev1.Container](), field), "Object.spec."+list+"."+field
	ops := []string{patch(fmt.Sprintf("!has(%s.%s)", appVariable, field), at, "[]")}
	for i := range n.items() {
		item := &n.items()[i]
		var absent string
		switch field {
		case "env":
			absent = fmt.Sprintf("!%s.?env.orValue([]).exists(x, x.name == %s)", appVariable, item.get("name").text)
		case "volumeMounts":
			absent = fmt.Sprintf("!%s.?volumeMounts.orValue([]).exists(x, %s)", appVariable, samePlace("x.mountPath", item.get("mountPath").text))
		case "envFrom": // all or none; in one operation, a list of objects makes the API server of Kubernetes 1.36 panic
			absent = "!has(" + appVariable + ".envFrom)"
		}
		ops = append(ops, patch(when(item, absent), strings.TrimSuffix(at, `"`)+`/-"`, item.value(t.Elem(), name)))
	}
	return ops
}

// samePlace: a path of the pod may end with a slash; other forms that mean the
// same are looked for beforehand.
func samePlace(theirs, own string) string {
	return fmt.Sprintf(`(%[1]s == %[2]s || %[1]s == %[2]s + "/")`, theirs, own)
}

// isApp says whether a container is the user's own, and the entry is for it. What
// a required template gives to every container, none escapes by an annotation alone.
func (m *mutation) isApp(where string) string {
	var brought []string
	for _, t := range m.set.Templates {
		for _, name := range t.Containers {
			is := fmt.Sprintf("%s.name == %q && %s", appVariable, name, marked(t))
			if m.t.Spec.Required {
				is += fmt.Sprintf(" && %s.image == %s", appVariable, m.imageOf(t, name))
			}
			brought = append(brought, is)
		}
	}
	conditions := []string{"!(" + some(brought...) + ")"}
	if where != "true" {
		conditions = append(conditions, where)
	}
	return all(conditions...)
}

// imageOf is the image of a template's container.
func (m *mutation) imageOf(t *templates.Template, name string) string {
	pod := (&builder{set: m.set, t: t}).fragment(t.PodFragment(), "spec.pod")
	for _, list := range lists() {
		for i := range pod.at("spec", list).items() {
			c := &pod.at("spec", list).items()[i]
			if unquoted(c.get("name")) != name {
				continue
			}
			if t != m.t && !c.get("image").constant {
				m.problem("spec.forEachContainer", "the template is required, and whether a container is the template %s's own cannot be told, because its image is not constant", t.Name)
			}
			return c.get("image").text
		}
	}
	return `""`
}
