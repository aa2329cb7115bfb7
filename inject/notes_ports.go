// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

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
