// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
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
		n := eachNode{where: "true", initContainers: e.InitContainers, add: m.fragmentNode(e.Add, &schema.Field{Schema: podSchema().At("spec").At("containers").Elem}, path+".add")}
		if e.Where != nil {
			n.where = m.rewriteAt(path+".where", e.Where).text
		}
		for j, name := range n.add.names {
			if known := []string{"env", "envFrom", "volumeMounts"}; !slices.Contains(known, name) {
				m.addProblem(n.add.children[j].path, "a policy cannot merge this into what the container has; it can add %s", strings.Join(known, ", "))
			}
		}
		m.each = append(m.each, n)
	}
	for _, other := range b.set.Templates {
		if other != t && slices.ContainsFunc(other.Containers, fragment.IsGenerated) {
			m.addProblem("spec", "a policy cannot recognize the containers of the template %s, whose names are computed", other.Name)
		}
	}
	if len(m.each) > 1 {
		m.addProblem("spec.forEachContainer", "several entries could add two different things to one container, which a policy cannot compare; join them into one")
	}
	for _, list := range containerLists() {
		position := fragment.PositionsIn(&t.Spec.Placement, list)[0]
		if position.End != v1alpha1.First && position.End != v1alpha1.Last {
			m.addProblem("spec.placement."+list, "a policy can place containers First or Last only")
		}
		items := m.pod.get("spec", list).items()
		for i := range items {
			name := items[i].get("name").constantString()
			if slices.ContainsFunc(m.containers, func(c newContainer) bool { return c.name == name }) {
				m.addProblem(fmt.Sprintf("spec.pod.spec.%s[%d]", list, i), "a policy cannot choose between two containers with the name %s", name)
			}
			m.containers = append(m.containers, newContainer{
				node: &items[i], name: name, list: list, variable: "adds_" + celIdentifier(name),
				first: position.End == v1alpha1.First,
			})
		}
	}
	return m
}

// prepareFragment adds to the fragment what depends on the pod but not on the template's author, as the
// engine does: the record of the injection, and the token's mount. It also makes resources
// conditional if the pod may have its own.
func (m *mutation) prepareFragment() {
	object := node{object: true, constant: true}
	constant := func(text string) node { return node{text: text, constant: true} }
	m.pod.ensureChild("metadata", object).ensureChild("annotations", object).appendChild(m.t.Annotation(templates.AnnotationInjected), constant(quoteString(m.t.Revision)))
	var added []string
	for _, c := range m.containers {
		for _, section := range []string{"requests", "limits"} {
			resources := c.get("resources", section)
			for i := range resources.members() {
				if isPodLevel(resources.names[i]) {
					resources.children[i].when = "!variables.podResources"
				}
			}
		}
		wants := []string{`variables.token != ""`}
		for i := range c.get("volumeMounts").items() {
			if own := &c.get("volumeMounts").items()[i]; own.get("mountPath").constantString() == validation.TokenPath {
				wants = append(wants, own.whenPresent("false"))
			}
		}
		mount := c.ensureChild("volumeMounts", node{list: true}).appendChild("", object)
		mount.when = allTrue(wants...)
		mount.appendChild("name", constant("variables.token"))
		mount.appendChild("readOnly", constant("true"))
		mount.appendChild("mountPath", constant(quoteString(validation.TokenPath)))
		wants[0] = "variables." + c.variable
		added = append(added, allTrue(wants...))
	}
	if len(added) > 0 {
		volume := m.pod.get("spec").ensureChild("volumes", node{list: true}).appendChild("", object)
		volume.when = fmt.Sprintf("variables.token == %q && (%s)", validation.NoTokenVolume, anyTrue(added...))
		volume.appendChild("name", constant(quoteString(validation.NoTokenVolume)))
		volume.appendChild(validation.NoTokenSource, object)
	}
}

// isPodLevel reports whether containers share a resource if the pod has pod-level resources (KEP-2837).
func isPodLevel(name string) bool {
	return name == "cpu" || name == "memory" || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}
