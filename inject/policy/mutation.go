// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// mutation is what one template adds to a pod.
type mutation struct {
	*builder
	pod        node
	each       []eachNode
	containers []newContainer
	fit        []string // names of variables that must all be true
}

// claim is a place to which only one template may add.
type claim struct{ what, value, path string }

// eachNode is one entry of forEachContainer.
type eachNode struct {
	where          string
	initContainers bool
	add            node
}

// newContainer is a container of the template.
type newContainer struct {
	*node
	name     string
	list     string
	variable string // reports whether the container is added
	first    bool
}

// newMutation returns the mutation for the builder's template.
func newMutation(b *builder) *mutation {
	m, t := &mutation{builder: b}, b.t
	m.pod = m.podFragment()
	for i, e := range t.EachFragments() {
		path := fmt.Sprintf("spec.forEachContainer[%d]", i)
		n := eachNode{where: "true", initContainers: e.InitContainers, add: m.fragment(e.Add, &schema.Field{Schema: podSchema().At("spec").At("containers").Elem}, path+".add")}
		if e.Where != nil {
			n.where = m.rewrite(path+".where", e.Where).text
		}
		for j, name := range n.add.names {
			if known := []string{"env", "envFrom", "volumeMounts"}; !slices.Contains(known, name) {
				m.problem(n.add.children[j].path, "a policy cannot merge this into what the container has; it can add %s", strings.Join(known, ", "))
			}
		}
		m.each = append(m.each, n)
	}
	for _, other := range b.set.Templates {
		if other != t && slices.ContainsFunc(other.Containers, templates.IsGenerated) {
			m.problem("spec", "a policy cannot recognize the containers that the template %s makes with ${forEach}", other.Name)
		}
	}
	if len(m.each) > 1 {
		m.problem("spec.forEachContainer", "several entries could add two different things to one container, which a policy cannot compare; join them into one")
	}
	for _, list := range lists() {
		position := templates.PositionIn(&t.Spec.Placement, list)
		if position.End != v1alpha1.First && position.End != v1alpha1.Last || position.After+position.Before != "" {
			m.problem("spec.placement."+list, "a policy can place containers First or Last only")
		}
		items := m.pod.get("spec", list).items()
		for i := range items {
			name := items[i].get("name").unquoted()
			if slices.ContainsFunc(m.containers, func(c newContainer) bool { return c.name == name }) {
				m.problem(fmt.Sprintf("spec.pod.spec.%s[%d]", list, i), "a policy cannot choose between two containers with the name %s", name)
			}
			m.containers = append(m.containers, newContainer{
				node: &items[i], name: name, list: list, variable: "adds_" + identifier(name),
				first: position.End == v1alpha1.First,
			})
		}
	}
	return m
}

// prepare adds to the fragment what depends on the pod but not on the template's author, as the
// engine does: the record of the injection, and the token's mount. It also makes resources
// conditional if the pod may have its own.
func (m *mutation) prepare() {
	object := node{object: true, constant: true}
	constant := func(text string) node { return node{text: text, constant: true} }
	m.pod.has("metadata", object).has("annotations", object).put(m.t.Annotation(templates.AnnotationInjected), constant(quote(m.t.Revision)))
	var added []string
	for _, c := range m.containers {
		for _, section := range []string{"requests", "limits"} {
			resources := c.get("resources", section)
			for i := range resources.members() {
				if shared(resources.names[i]) {
					resources.children[i].when = "!variables.podResources"
				}
			}
		}
		wants := []string{`variables.token != ""`}
		for i := range c.get("volumeMounts").items() {
			if own := &c.get("volumeMounts").items()[i]; own.get("mountPath").unquoted() == templates.TokenPath {
				wants = append(wants, own.unless("false"))
			}
		}
		mount := c.has("volumeMounts", node{list: true}).put("", object)
		mount.when = all(wants...)
		mount.put("name", constant("variables.token"))
		mount.put("readOnly", constant("true"))
		mount.put("mountPath", constant(quote(templates.TokenPath)))
		wants[0] = "variables." + c.variable
		added = append(added, all(wants...))
	}
	if len(added) > 0 {
		volume := m.pod.get("spec").has("volumes", node{list: true}).put("", object)
		volume.when = fmt.Sprintf("variables.token == %q && (%s)", templates.NoTokenVolume, some(added...))
		volume.put("name", constant(quote(templates.NoTokenVolume)))
		volume.put(templates.NoTokenSource, object)
	}
}

// shared reports whether containers share a resource if the pod has pod-level resources (KEP-2837).
func shared(name string) bool {
	return name == "cpu" || name == "memory" || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}
