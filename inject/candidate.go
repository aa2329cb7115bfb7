// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// candidate is one template with what it renders for this pod. The candidates of a round are the templates that no rule excludes.
// Functions that need to know what a template would render under other circumstances make further candidates, whose decisions do
// not count.
type candidate struct {
	subject  *subject
	t        *loaded
	decision *Decision
	input    cel.Input // not shared, because it counts the cost of the template's expressions
	values   params.Values
	fragment jsontree.Node // what the pod must have, as a partial Pod
	placed   v1alpha1.Placement
	apps     []appContainer // the user's containers to which the template adds something
	altered  []Difference   // before this round added anything
	added    bool           // whether it added something to the pod in this round

	byName     map[string]*jsontree.Node // see ownContainer
	appsByName map[string][]int          // see appsOf

	// byCluster returns what templates of the cluster add to the container existing of this template. It is nil for a template of
	// the cluster, whose containers no other template adds to.
	byCluster func(c *candidate, existing *jsontree.Node) []*jsontree.Node
}

// recordPassed records that a rule does not apply, unless the reason is obvious.
func (c *candidate) recordPassed(code Code, why string) {
	if c.subject.request.detail && why != "" {
		c.decision.Passed = append(c.decision.Passed, Step{code, why})
	}
}

// recordNote adds a note to the decision.
func (c *candidate) recordNote(text string) { c.decision.recordNote(text) }

func (d *Decision) recordNote(text string) {
	if len(d.Notes) < maxConflicts && !slices.Contains(d.Notes, text) {
		d.Notes = append(d.Notes, text)
	}
}

// matchesOwn reports whether a container of the pod has everything that the template's container with the same name has.
func (c *candidate) matchesOwn(existing *jsontree.Node) bool {
	own := c.ownContainer(existing)
	return own != nil && c.subject.schema.At("spec").At("containers").Elem.Contains(c.subject.withHostPorts(existing), own)
}

// hasSameEffect reports whether two containers, or two items of a list in them, have the same effect in this pod.
func (s *subject) hasSameEffect(in *schema.Schema, a, b *jsontree.Node) bool {
	if s.onHost {
		a, b = s.withHostPorts(s.withHostPort(a, in)), s.withHostPorts(s.withHostPort(b, in))
	}
	return in.Equal(a, b)
}

// withHostPorts returns a container in which each port has a hostPort, which the API server sets if the pod uses the node's network.
// In other pods, it returns the container unchanged.
func (s *subject) withHostPorts(container *jsontree.Node) *jsontree.Node {
	ports := container.Get("ports").Items()
	if !s.onHost || len(ports) == 0 {
		return container
	}
	all := append(s.nodes.Nodes(len(ports)), ports...)
	for i := range all {
		all[i] = *s.withHostPort(&all[i], s.containerSchema().At("ports").Elem)
	}
	return new(s.nodes.With(container, "ports", jsontree.Items(all...)))
}

// withHostPort is withHostPorts for one port. It returns a value that is no port unchanged.
func (s *subject) withHostPort(port *jsontree.Node, in *schema.Schema) *jsontree.Node {
	number := port.Get("containerPort")
	if in.GoType != schema.PortType() || number == nil || port.Get("hostPort") != nil {
		return port
	}
	return s.storeNode(s.nodes.With(port, "hostPort", *number))
}

// ownContainer returns the template's container with the same name as one of the pod's, or nil.
func (c *candidate) ownContainer(existing *jsontree.Node) *jsontree.Node {
	if c.countContainers() < longList {
		return c.subject.sameName(&c.fragment, existing)
	}
	if c.byName == nil {
		c.byName = map[string]*jsontree.Node{}
		for _, list := range schema.ContainerLists() {
			items := c.fragment.At("spec", list).Items()
			for i := range items {
				if name := items[i].Get("name").Text(); c.byName[name] == nil {
					c.byName[name] = &items[i]
				}
			}
		}
	}
	return c.byName[existing.Get("name").Text()]
}

// countContainers returns the number of containers that the template brings to this pod.
func (c *candidate) countContainers() (n int) {
	for _, list := range schema.ContainerLists() {
		n += len(c.fragment.At("spec", list).Items())
	}
	return n
}

// claimsName reports whether a container of the pod has a name that the template uses in this pod. The
// caller reads the name once for all templates.
func (c *candidate) claimsName(name string, existing *jsontree.Node) bool {
	return slices.Contains(c.t.Containers, name) || c.t.Brings(name) && c.ownContainer(existing) != nil
}

// sameName returns the container of a fragment with the same name as one of the pod's, or nil.
func (s *subject) sameName(fragment, existing *jsontree.Node) *jsontree.Node {
	for _, list := range schema.ContainerLists() {
		items := fragment.At("spec", list).Items()
		if i := s.schema.At("spec").At(list).Find(items, existing); i >= 0 {
			return &items[i]
		}
	}
	return nil
}

// appContainer is a container that the user wrote, with the additions of one template for it.
type appContainer struct {
	list      string
	index     int
	token     string // of a pointer to it: its index among the original containers, or -
	name      string
	fragments []jsontree.Node // partial containers, one for each entry of forEachContainer that matches
	taken     []takenVariable
}
