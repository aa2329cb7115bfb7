// SPDX-License-Identifier: Apache-2.0

package inject

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
