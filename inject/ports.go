// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// checkMounts finds mounts that stand in each other's way, and such without a
// volume: a ${when} may have left it out. Two of the fragment's own at one place
// make it one that cannot be added.
func (p *planner) checkMounts(existing, fragment *tree.Node, at schema.Pointer) (addable bool) {
	taken := make([]string, 0, 16)
	addable = true
	for _, list := range []string{"volumeMounts", "volumeDevices"} {
		items := fragment.Get(list).Items()
		for i := range items {
			place := mountPlace(&items[i])
			if slices.Contains(taken, place) {
				p.conflict(at.Member(list), nil, &items[i], "the template puts two volumes at %s; mend the template", place)
				addable = false
			}
			taken = append(taken, place)
			if !p.hasVolume(&items[i]) {
				p.failed = fmt.Errorf("there is no volume %s for the mount at %s", items[i].Get("name"), place)
			}
		}
	}
	for _, lists := range [][2]string{{"volumeMounts", "volumeDevices"}, {"volumeDevices", "volumeMounts"}} {
		items, theirs := fragment.Get(lists[0]).Items(), existing.Get(lists[1]).Items()
		for i := range items {
			for j := range theirs {
				if place := mountPlace(&items[i]); place == mountPlace(&theirs[j]) {
					p.conflict(at.Member(lists[1]).Item(theirs, j), &theirs[j], &items[i], "the pod has another kind of volume at %s; put that one elsewhere", place)
				}
			}
		}
	}
	return addable
}

func mountPlace(item *tree.Node) string {
	if device := item.Get("devicePath").Text(); device != "" {
		return schema.CleanPath(device)
	}
	return schema.CleanPath(item.Get("mountPath").Text())
}

func (p *planner) hasVolume(mount *tree.Node) bool {
	volumes := p.schema.At("spec").At("volumes").Schema // found by name, as a mount is by its volume's
	return volumes.Find(p.fragment.At("spec", "volumes").Items(), mount) >= 0 || p.find(volumes, p.pod.At("spec", "volumes"), mount) >= 0 ||
		p.isClaim(mount)
}

// nodePort is a port of the node that a container takes.
type nodePort struct {
	container, port, protocol, ip string
	at                            place // the container's ports
	order                         int
}

// place is a pointer that is a text already.
type place string

func (p place) String() string { return string(p) }

// nodePorts are who takes which port of the node: the first of all, by port and
// protocol, and the first for each address.
type nodePorts map[[2]string]map[string]*nodePort

// allHosts and anyHost stand for addresses: no address is all of them, and a port
// that is at any address clashes with those.
const allHosts, anyHost = "", "\x00"

func (all nodePorts) take(n nodePort) {
	key := [2]string{n.port, n.protocol}
	taken := all[key]
	if taken == nil {
		taken = map[string]*nodePort{}
		all[key] = taken
	}
	n.order = len(taken) // later ones have more; two alike are never compared
	for _, host := range []string{n.host(), anyHost} {
		if taken[host] == nil {
			taken[host] = &n
		}
	}
}

// clash is the first that shares the port at an address of the node, or nil.
func (all nodePorts) clash(n *nodePort) *nodePort {
	taken := all[[2]string{n.port, n.protocol}]
	if n.host() == allHosts {
		return taken[anyHost]
	}
	every, same := taken[allHosts], taken[n.host()]
	if every == nil || same != nil && same.order < every.order {
		return same
	}
	return every
}

func (n *nodePort) host() string {
	if n.ip == "0.0.0.0" {
		return allHosts
	}
	return n.ip
}

// nodePortOf is what a port takes of the node: on the host network each port
// does, which the API server writes down as hostPort.
func (r *run) nodePortOf(container string, port *tree.Node) (n nodePort, ok bool) {
	number := port.Get("hostPort")
	if number == nil || schema.IsZero(number) {
		if !r.onHost {
			return nodePort{}, false
		}
		number = port.Get("containerPort")
	}
	return nodePort{container: container, port: number.String(), protocol: schema.Protocol(port), ip: port.Get("hostIP").Text()}, true
}

// portsTaken are the ports of the node that the pod's containers take. A plain
// init container is done before the others begin.
func (r *run) portsTaken() nodePorts {
	if r.ports != nil {
		return r.ports
	}
	r.ports = nodePorts{}
	for _, list := range containerLists() {
		containers := r.pod.At("spec", list).Items()
		for i, at := range numbered(containers) {
			if list == "initContainers" && !isSidecar(&containers[i]) {
				continue
			}
			name, ports := containers[i].Get("name").Text(), containers[i].Get("ports").Items()
			for j := range ports {
				if n, ok := r.nodePortOf(name, &ports[j]); ok {
					n.at = place("/spec/" + list + "/" + at + "/ports")
					r.ports.take(n)
				}
			}
		}
	}
	return r.ports
}

// numbered are the indices of items, with what a pointer to each says: see [schema.Pointer.String].
func numbered(items []tree.Node) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		came := 0
		for i := range items {
			name := "-"
			if !items[i].Added() {
				name, came = strconv.Itoa(came), came+1
			}
			if !yield(i, name) {
				return
			}
		}
	}
}

// checkPorts: two containers with the same port of the node never start, and the
// API server's validation does not find all of them. A plain init container is
// done before the others begin.
func (p *planner) checkPorts(list string, existing, fragment *tree.Node, at schema.Pointer) {
	ports := fragment.Get("ports").Items()
	if len(ports) == 0 {
		return
	}
	name, own := orElse(existing, fragment).Get("name").Text(), existing.Get("ports").Items()
	plain := list == "initContainers" && !isSidecar(existing) && !isSidecar(fragment)
	key := p.schema.At("spec").At("containers").Elem.At("ports")
	for i := range ports {
		p.checkPortName(name, &ports[i], own, key, at.Member("ports"))
		if key.Find(own, &ports[i]) >= 0 || plain || len(p.conflicts) == maxConflicts {
			continue
		}
		n, ok := p.nodePortOf(name, &ports[i])
		if !ok {
			continue
		}
		if p.onHost && !schema.SameNumber(orElse(ports[i].Get("hostPort"), ports[i].Get("containerPort")), ports[i].Get("containerPort")) {
			p.conflict(at.Member("ports"), nil, &ports[i], "on the host network the host port %s would have to be the container's", n.port)
		}
		p.checkNodePort(n, &ports[i])
		n.at = place(at.String() + "/ports")
		if p.claimed == nil {
			p.claimed = nodePorts{}
		}
		p.claimed.take(n)
	}
}

// checkPortName: a port's name stands for one port of its container.
func (p *planner) checkPortName(container string, port *tree.Node, own []tree.Node, key *schema.Field, at schema.Pointer) {
	name := port.Get("name")
	for i := range own {
		if name != nil && own[i].Get("name") != nil && name.IsText(own[i].Get("name").Text()) && !key.SameKey(port, &own[i]) {
			p.conflict(at.Item(own, i), &own[i], port, "the container %s has another port named %s; give that one another name", container, name.Text())
		}
	}
}

// checkNodePort finds who else takes a port of the node, this template itself or
// a container of the pod.
func (p *planner) checkNodePort(n nodePort, port *tree.Node) {
	for _, all := range []nodePorts{p.claimed, p.portsTaken()} {
		if other := all.clash(&n); other != nil {
			p.conflict(other.at, nil, port, "the host port %s is taken by the container %s; let that one use another", n.port, other.container)
			return
		}
	}
}

func isSidecar(container *tree.Node) bool {
	return container.Get("restartPolicy") != nil && container.Get("restartPolicy").IsText(string(corev1.ContainerRestartPolicyAlways))
}

func orElse(n, other *tree.Node) *tree.Node {
	if n == nil {
		return other
	}
	return n
}
