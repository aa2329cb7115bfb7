// SPDX-License-Identifier: Apache-2.0

package inject

// nodePort is a port of the node that a container uses.
type nodePort struct {
	container, port, protocol, ip string
	at                            listPath // the container's ports
	order                         int
}

// listPath is a pointer that is a string already.
type listPath string

// String returns the pointer.
func (p listPath) String() string { return string(p) }

// nodePorts has the containers that use ports of the node, by port and protocol. For each, it has the first container by address, and
// the first one of all by anyHost.
type nodePorts map[[2]string]map[string]*nodePort

// allHosts and anyHost are keys instead of addresses. A port without an address uses all addresses.
// A port at any address conflicts with it.
const allHosts, anyHost = "", "\x00"

func (all nodePorts) addPort(n nodePort) {
	key := [2]string{n.port, n.protocol}
	taken := all[key]
	if taken == nil {
		taken = map[string]*nodePort{}
		all[key] = taken
	}
	n.order = len(taken) // each port that is kept below increases it for the next one
	for _, host := range []string{n.hostKey(), anyHost} {
		if taken[host] == nil {
			taken[host] = &n
		}
	}
}

// findClash returns the first port that conflicts at an address of the node, or nil.
func (all nodePorts) findClash(n *nodePort) *nodePort {
	taken := all[[2]string{n.port, n.protocol}]
	if n.hostKey() == allHosts {
		return taken[anyHost]
	}
	every, same := taken[allHosts], taken[n.hostKey()]
	if every == nil || same != nil && same.order < every.order {
		return same
	}
	return every
}

func (n *nodePort) hostKey() string {
	if n.ip == "0.0.0.0" {
		return allHosts
	}
	return n.ip
}
