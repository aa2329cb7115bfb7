// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// checkMounts finds mounts that stand in each other's way, and such without a
// volume: a ${when} may have left it out. Two of the fragment's own at one place
// make it one that cannot be added.
func (p *planner) checkMounts(existing, fragment *tree.Node, at pointer) (addable bool) {
	taken := make([]string, 0, 16)
	addable = true
	for _, list := range []string{"volumeMounts", "volumeDevices"} {
		items := fragment.Get(list).Items()
		for i := range items {
			place := mountPlace(&items[i])
			if slices.Contains(taken, place) {
				p.conflict(at.member(list), nil, &items[i], "the template puts two volumes at %s; mend the template", place)
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
					p.conflict(at.member(lists[1]).item(theirs, j), &theirs[j], &items[i], "the pod has another kind of volume at %s; put that one elsewhere", place)
				}
			}
		}
	}
	return addable
}

func mountPlace(item *tree.Node) string {
	if device := item.Get("devicePath").Text(); device != "" {
		return path.Clean(device)
	}
	return path.Clean(item.Get("mountPath").Text())
}

func (p *planner) hasVolume(mount *tree.Node) bool {
	volumes := p.schema.at("spec").at("volumes").schema // found by name, as a mount is by its volume's
	return volumes.find(p.fragment.At("spec", "volumes").Items(), mount) >= 0 || p.find(volumes, p.pod.At("spec", "volumes"), mount) >= 0 ||
		p.isClaim(mount)
}

// nodePort is a port of the node that a container takes.
type nodePort struct {
	container, port, protocol, ip string
	at                            string // the container's pointer, of what is to be added
}

func (n *nodePort) clashes(other *nodePort) bool {
	return n.port == other.port && n.protocol == other.protocol && sameHost(n.ip, other.ip)
}

// nodePortOf is what a port takes of the node: on the host network each port
// does, which the API server writes down as hostPort.
func (p *planner) nodePortOf(container string, port *tree.Node) (n nodePort, ok bool) {
	number := port.Get("hostPort")
	if number == nil || isZero(number) {
		if p.pod.At("spec", "hostNetwork").Kind() != tree.True {
			return nodePort{}, false
		}
		number = port.Get("containerPort")
	}
	return nodePort{container: container, port: number.String(), protocol: protocol(port), ip: port.Get("hostIP").Text()}, true
}

// checkPorts: two containers with the same port of the node never start, and the
// API server's validation does not find all of them. A plain init container is
// done before the others begin.
func (p *planner) checkPorts(list string, existing, fragment *tree.Node, at pointer) {
	ports := fragment.Get("ports").Items()
	if len(ports) == 0 {
		return
	}
	name, own := orElse(existing, fragment).Get("name").Text(), existing.Get("ports").Items()
	plain := list == "initContainers" && !isSidecar(existing) && !isSidecar(fragment)
	key := p.schema.at("spec").at("containers").elem.at("ports")
	for i := range ports {
		p.checkPortName(name, &ports[i], own, key, at.member("ports"))
		if key.find(own, &ports[i]) >= 0 || plain || len(p.conflicts) == maxConflicts {
			continue
		}
		n, ok := p.nodePortOf(name, &ports[i])
		if !ok {
			continue
		}
		if p.pod.At("spec", "hostNetwork").Kind() == tree.True && !sameNumber(orElse(ports[i].Get("hostPort"), ports[i].Get("containerPort")), ports[i].Get("containerPort")) {
			p.conflict(at.member("ports"), nil, &ports[i], "on the host network the host port %s would have to be the container's", n.port)
		}
		p.checkNodePort(n, &ports[i])
		n.at = at.String()
		p.claimed = append(p.claimed, n)
	}
}

// checkPortName: a port's name stands for one port of its container.
func (p *planner) checkPortName(container string, port *tree.Node, own []tree.Node, key *field, at pointer) {
	name := port.Get("name")
	for i := range own {
		if name != nil && own[i].Get("name") != nil && name.IsText(own[i].Get("name").Text()) && !key.sameKey(port, &own[i]) {
			p.conflict(at.item(own, i), &own[i], port, "the container %s has another port named %s; give that one another name", container, name.Text())
		}
	}
}

// checkNodePort finds who else takes a port of the node, this template itself or
// a container of the pod.
func (p *planner) checkNodePort(n nodePort, port *tree.Node) {
	const taken = "the host port %s is taken by the container %s; let that one use another"
	for i := range p.claimed {
		if p.claimed[i].clashes(&n) {
			p.conflictAt(p.claimed[i].at+"/ports", nil, port, taken, n.port, p.claimed[i].container)
			return
		}
	}
	for _, list := range containerLists() {
		containers := p.pod.At("spec", list).Items()
		for i := range containers {
			if list == "initContainers" && !isSidecar(&containers[i]) {
				continue
			}
			name, ports := containers[i].Get("name").Text(), containers[i].Get("ports").Items()
			for j := range ports {
				if other, ok := p.nodePortOf(name, &ports[j]); ok && other.clashes(&n) {
					p.conflict(listPointer(list).item(containers, i).member("ports"), nil, port, taken, n.port, name)
					return
				}
			}
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

// sameHost says whether two ports share an address of the node; no address is all of them.
func sameHost(a, b string) bool {
	return a == b || a == "" || b == "" || a == "0.0.0.0" || b == "0.0.0.0"
}
