// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// checkPorts reports a conflict if two containers use the same port of the node. Such a pod would never start, and
// the API server's validation does not find all such cases. A plain init container ends before the
// others begin, so it conflicts only with itself: the API server rejects it if it has the same port twice.
func (p *planner) checkPorts(list string, existing, fragment *jsontree.Node, at schema.Pointer) {
	ports := fragment.Get("ports").Items()
	if len(ports) == 0 {
		return
	}
	name, own := cmp.Or(existing, fragment).Get("name").Text(), existing.Get("ports").Items()
	plain := list == "initContainers" && !isSidecar(existing) && !isSidecar(fragment)
	key := p.subject.schema.At("spec").At("containers").Elem.At("ports")
	alone := nodePorts{}
	if plain {
		p.subject.takePorts(alone, name, own, at.String()+"/ports")
	}
	for i := range ports {
		p.checkPortName(name, &ports[i], own, key, at.Member("ports"))
		if key.Find(own, &ports[i]) >= 0 || len(p.conflicts) == maxConflicts {
			continue
		}
		n, ok := p.subject.nodePortOf(name, &ports[i])
		if !ok {
			continue
		}
		n.at = listPath(at.String() + "/ports")
		if plain {
			if twice := alone.findClash(&n); twice != nil {
				p.reportConflict(twice.at, nil, &ports[i], "the container %s would use the host port %s twice; let one of its ports use another", name, n.port)
			}
			alone.addPort(n)
			continue
		}
		if p.subject.onHost && !schema.SameNumber(cmp.Or(ports[i].Get("hostPort"), ports[i].Get("containerPort")), ports[i].Get("containerPort")) {
			p.reportConflict(at.Member("ports"), nil, &ports[i], "on the host network, the host port %s must equal the container's port", n.port)
		}
		p.checkNodePort(n, &ports[i])
		if p.claimedPorts == nil {
			p.claimedPorts = nodePorts{}
		}
		p.claimedPorts.addPort(n)
	}
}

// checkPortName reports a conflict if the container has another port with the same name.
func (p *planner) checkPortName(container string, port *jsontree.Node, own []jsontree.Node, key *schema.Field, at schema.Pointer) {
	name := port.Get("name")
	for i := range own {
		if name != nil && own[i].Get("name") != nil && name.IsText(own[i].Get("name").Text()) && !key.SameKey(port, &own[i]) {
			p.reportConflict(at.Item(own, i), &own[i], port, "the container %s has another port named %s; rename that port", container, name.Text())
		}
	}
}

// checkNodePort reports a conflict if another container uses a port of the node. That may be a container of the
// template or of the pod.
func (p *planner) checkNodePort(n nodePort, port *jsontree.Node) {
	if twice := p.claimedPorts.findClash(&n); twice != nil {
		p.reportConflict(twice.at, nil, port, "the template uses the host port %s in two containers, %s and %s; fix the template", n.port, twice.container, n.container)
		return
	}
	other := p.subject.portsTaken().findClash(&n)
	if other == nil {
		return
	}
	owner := p.findContributor(func(c *candidate) bool { return c.usesNodePort(other.container, n.port) })
	if owner != "" {
		p.reportConflict(other.at, nil, port, "the template %s uses the host port %s in the container %s; change the port in one of the templates", owner, n.port, other.container)
		return
	}
	p.reportConflict(other.at, nil, port, "the host port %s is taken by the container %s; let that one use another", n.port, other.container)
}

// portsTaken returns the ports of the node that the pod's containers use. It ignores plain init
// containers, which end before the others begin.
func (s *subject) portsTaken() nodePorts {
	if s.ports != nil {
		return s.ports
	}
	s.ports = nodePorts{}
	for _, list := range schema.ContainerLists() {
		containers := s.pod.At("spec", list).Items()
		for i, at := range pointerTokens(containers) {
			if list == "initContainers" && !isSidecar(&containers[i]) {
				continue
			}
			s.takePorts(s.ports, containers[i].Get("name").Text(), containers[i].Get("ports").Items(), "/spec/"+list+"/"+at+"/ports")
		}
	}
	return s.ports
}

// takePorts records the ports of the node that the ports of one container use.
func (s *subject) takePorts(all nodePorts, container string, ports []jsontree.Node, at string) {
	for i := range ports {
		if n, ok := s.nodePortOf(container, &ports[i]); ok {
			n.at = listPath(at)
			all.addPort(n)
		}
	}
}

// nodePortOf returns the port of the node that a container's port uses. On the host network, every
// port uses one, and the API server sets hostPort.
func (s *subject) nodePortOf(container string, port *jsontree.Node) (n nodePort, ok bool) {
	number := port.Get("hostPort")
	if number == nil || schema.IsZero(number) {
		if !s.onHost {
			return nodePort{}, false
		}
		number = port.Get("containerPort")
	}
	return nodePort{container: container, port: number.String(), protocol: schema.Protocol(port), ip: port.Get("hostIP").Text()}, true
}

// usesNodePort reports whether the template brings a container with this name, or adds this host port to
// a user's container.
func (c *candidate) usesNodePort(container, port string) bool {
	if c.t.Brings(container) {
		return true
	}
	return slices.ContainsFunc(c.apps, func(app appContainer) bool {
		return slices.ContainsFunc(app.fragments, func(f jsontree.Node) bool {
			return slices.ContainsFunc(f.Get("ports").Items(), func(p jsontree.Node) bool {
				n, ok := c.subject.nodePortOf(container, &p)
				return ok && n.port == port
			})
		})
	})
}
