// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// noteWhere adds a note if the template adds nothing to the containers of the pod, and for each name in the pod's annotations that
// should be the name of a container and is not. Both are probably mistakes.
func (c *candidate) noteWhere(o *owners) {
	if !c.t.HasForEach() {
		return
	}
	apps := o.userContainers(c.t.Spec.Required)
	if len(apps) > 0 && (len(c.apps) == 0 || c.subject.request.detail) {
		if wheres := c.t.Unmatched(&c.input, c.values); len(wheres) > 0 {
			c.recordNote(fmt.Sprintf("no container of the pod matches where: %s", strings.Join(wheres[:min(len(wheres), maxConflicts)], "; nor where: ")))
		}
	}
	if c.t.NamesContainers() {
		c.noteNames(c.t.NamedContainers(&c.input, c.values))
	}
}

func (c *candidate) noteNames(named []templates.NamedContainer) {
	if len(named) == 0 {
		return
	}
	there, names := map[string]bool{}, []string(nil)
	for _, list := range schema.ContainerLists() {
		items := c.subject.pod.At("spec", list).Items()
		for i := range items {
			name := items[i].Get("name").Text()
			if there[name] = true; len(names) < longList {
				names = append(names, name)
			}
		}
	}
	for _, n := range named {
		if !there[n.Name] && len(c.decision.Notes) < maxConflicts {
			c.recordNote(fmt.Sprintf("the annotation %s names the container %q, which the pod does not have%s", n.Annotation, problem.Cut(n.Name, maxName), problem.DidYouMean(n.Name, names)))
		}
	}
}

// maxName is the maximum length of a container's name in a note.
const maxName = 63

// notePorts adds a note for each port of the template's containers that another container of the pod has, too. All
// containers of a pod share one network, so only one of them can listen on the port. This is no conflict, because
// containerPort is only information: perhaps no container listens on it.
func (c *candidate) notePorts() {
	room := longList // each port takes a walk through the pod
	for _, list := range schema.ContainerLists() {
		containers := c.fragment.At("spec", list).Items()
		for i := range containers {
			if list == "containers" || isSidecar(&containers[i]) {
				c.notePortsOf(&containers[i], &room)
			}
		}
	}
}

func (c *candidate) notePortsOf(container *jsontree.Node, room *int) {
	ports, name := container.Get("ports").Items(), container.Get("name").Text()
	for i := range ports {
		if *room--; *room < 0 {
			return
		}
		if other := c.findListener(&ports[i], name); other != "" {
			c.recordNote(fmt.Sprintf("the containers %s and %s have the same port, %s; they share one network, so only one of them can listen on it",
				min(name, other), max(name, other), ports[i].Get("containerPort")))
		}
	}
}

// findListener returns another container of the pod with a port, or "". It ignores plain init containers,
// which end before the others begin.
func (c *candidate) findListener(port *jsontree.Node, besides string) string {
	number, protocol := port.Get("containerPort"), schema.Protocol(port)
	for _, list := range schema.ContainerLists() {
		containers := c.subject.pod.At("spec", list).Items()
		for i := range containers {
			name, ports := containers[i].Get("name"), containers[i].Get("ports").Items()
			if len(ports) == 0 || name == nil || name.IsText(besides) || list == "initContainers" && !isSidecar(&containers[i]) {
				continue
			}
			for j := range ports {
				if there := ports[j].Get("containerPort"); there != nil && number != nil && schema.SameNumber(there, number) && schema.Protocol(&ports[j]) == protocol {
					return name.Text()
				}
			}
		}
	}
	return ""
}
