// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// checkMounts finds mounts that stand in each other's way, and such without a
// volume: a ${when} may have left it out.
func (p *planner) checkMounts(existing, fragment *tree.Node, at string) {
	taken := map[string]bool{}
	for _, list := range []string{"volumeMounts", "volumeDevices"} {
		items := fragment.Get(list).Items()
		for i := range items {
			place := mountPlace(&items[i])
			if taken[place] {
				p.conflict(at+"/"+list, nil, &items[i], "the template puts two volumes at %s; mend the template", place)
			}
			taken[place] = true
			if name := items[i].Get("name"); !p.hasVolume(name) {
				p.failed = fmt.Errorf("there is no volume %s for the mount at %s", name, place)
			}
		}
	}
	for _, lists := range [][2]string{{"volumeMounts", "volumeDevices"}, {"volumeDevices", "volumeMounts"}} {
		items, theirs := fragment.Get(lists[0]).Items(), existing.Get(lists[1]).Items()
		for i := range items {
			for j := range theirs {
				if place := mountPlace(&items[i]); place == mountPlace(&theirs[j]) {
					p.conflict(item(at+"/"+lists[1], theirs, j), &theirs[j], &items[i], "the pod has another kind of volume at %s; put that one elsewhere", place)
				}
			}
		}
	}
}

func mountPlace(item *tree.Node) string {
	if device := item.Get("devicePath").Text(); device != "" {
		return path.Clean(device)
	}
	return path.Clean(item.Get("mountPath").Text())
}

func (p *planner) hasVolume(name *tree.Node) bool {
	for _, spec := range []*tree.Node{p.fragment.Get("spec"), p.pod.Get("spec")} {
		volumes := spec.Get("volumes").Items()
		for i := range volumes {
			if volumes[i].Get("name") != nil && name != nil && volumes[i].Get("name").IsText(name.Text()) {
				return true
			}
		}
	}
	return false
}

// nodePort is a port of the node that a container takes.
type nodePort struct {
	container, port, protocol, ip string
	at                            string // the container's pointer
}

// nodePortOf is what a port takes of the node: on the host network each port
// does, which the API server writes down as hostPort.
func (p *planner) nodePortOf(container, at string, port *tree.Node) (n nodePort, ok bool) {
	number := port.Get("hostPort")
	if number == nil || isZero(number) {
		if p.pod.At("spec", "hostNetwork").Kind() != tree.True {
			return nodePort{}, false
		}
		number = port.Get("containerPort")
	}
	return nodePort{container, number.String(), protocol(port), port.Get("hostIP").Text(), at}, true
}

// checkPorts: two containers with the same port of the node never start, and the
// API server's validation does not find all of them. A plain init container is
// done before the others begin.
func (p *planner) checkPorts(list string, existing, fragment *tree.Node, at string) {
	name := fragment.Get("name").Text()
	if existing != nil {
		name = existing.Get("name").Text()
	}
	ports, own := fragment.Get("ports").Items(), existing.Get("ports").Items()
	plain := list == "initContainers" && !isSidecar(existing) && !isSidecar(fragment)
	key := p.schema.at("spec").at("containers").elem.at("ports")
	for i := range ports {
		p.checkPortName(name, &ports[i], own, key, at+"/ports")
		if key.find(own, &ports[i]) >= 0 || plain || len(p.conflicts) == maxConflicts {
			continue
		}
		n, ok := p.nodePortOf(name, at, &ports[i])
		if !ok {
			continue
		}
		if p.pod.At("spec", "hostNetwork").Kind() == tree.True && !sameNumber(orElse(ports[i].Get("hostPort"), ports[i].Get("containerPort")), ports[i].Get("containerPort")) {
			p.conflict(at+"/ports", nil, &ports[i], "on the host network the host port %s would have to be the container's", n.port)
		}
		for _, taken := range p.nodePorts() {
			if taken.port == n.port && taken.protocol == n.protocol && sameHost(taken.ip, n.ip) {
				p.conflict(taken.at+"/ports", nil, &ports[i], "the host port %s is taken by the container %s; let that one use another", n.port, taken.container)
				break
			}
		}
		p.claimed = append(p.claimed, n)
	}
}

// checkPortName: a port's name stands for one port of its container.
func (p *planner) checkPortName(container string, port *tree.Node, own []tree.Node, key *field, at string) {
	name := port.Get("name")
	for i := range own {
		if name != nil && own[i].Get("name") != nil && name.IsText(own[i].Get("name").Text()) && !key.sameKey(port, &own[i]) {
			p.conflict(item(at, own, i), &own[i], port, "the container %s has another port named %s; give that one another name", container, name.Text())
		}
	}
}

// nodePorts are those that the pod takes, and this template so far.
func (p *planner) nodePorts() []nodePort {
	all := p.claimed
	for _, list := range containerLists() {
		containers := p.pod.At("spec", list).Items()
		for i := range containers {
			if list == "initContainers" && !isSidecar(&containers[i]) {
				continue
			}
			ports := containers[i].Get("ports").Items()
			for j := range ports {
				if n, ok := p.nodePortOf(containers[i].Get("name").Text(), item("/spec/"+list, containers, i), &ports[j]); ok {
					all = append(all, n)
				}
			}
		}
	}
	return all
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
