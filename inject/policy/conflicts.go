// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// safe declares what the engine finds out before it adds anything: where one of
// these does not hold, the pod is left alone.
func (m *mutation) safe() {
	for _, c := range m.newContainers() {
		m.variable(c.variable, when(c.node, fmt.Sprintf("!(variables.initContainers + variables.containers).exists(x, x.name == %q)", c.name)))
	}
	m.must("namesFree", m.namesFree())
	m.must("volumesFree", m.volumesFree())
	m.must("placesFree", m.placesFree())
	m.must("portsFree", m.portsFree())
	m.must("valuesRight", m.valuesRight())
	fit := make([]string, len(m.fit))
	for i, name := range m.fit {
		fit[i] = "variables." + name
	}
	m.variable("fit", all(fit...))
}

// must declares a variable without which nothing is added.
func (m *mutation) must(name string, conditions []string) {
	var once []string
	for _, c := range conditions {
		if !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	if len(once) > 0 {
		m.variable(name, all(once...))
		m.fit = append(m.fit, name)
	}
}

// unless makes a condition for an item that its own condition may leave out. Where
// that depends on the app container it must hold for any.
func unless(n *node, condition string) string {
	if n.whenApp {
		return condition
	}
	return unlessApp(n, condition)
}

// unlessApp is unless where there is an app container.
func unlessApp(n *node, condition string) string {
	if n.when == "" {
		return condition
	}
	return fmt.Sprintf("!(%s) || (%s)", n.when, condition)
}

// namesFree: a container of the name is the template's own only where the pod
// says that it was injected, and in the right list.
func (m *mutation) namesFree() []string {
	var conditions []string
	for _, c := range m.newContainers() {
		other := lists()[1-slices.Index(lists(), c.list)]
		conditions = append(conditions, unless(c.node, fmt.Sprintf(
			"!variables.%s.exists(x, x.name == %[3]q) && (variables.injected || !variables.%[2]s.exists(x, x.name == %[3]q))", other, c.list, c.name)))
	}
	return conditions
}

// volumesFree: a volume of the name is the same volume.
func (m *mutation) volumesFree() []string {
	var conditions []string
	volumes := m.pod.at("spec", "volumes").items()
	for i := range volumes {
		n := &volumes[i]
		conditions = append(conditions, unless(n, fmt.Sprintf("variables.volumes.all(x, x.name != %s || (%s))",
			n.get("name").text, m.contained(n, reflect.TypeFor[corev1.Volume](), "x"))))
	}
	if len(m.t.Containers) > 0 {
		conditions = append(conditions, fmt.Sprintf("variables.token != %q || variables.volumes.all(x, x.name != %[1]q || has(x.emptyDir))", noTokenVolume))
	}
	return conditions
}

// placesFree: what the template mounts into an app container stands in nobody's
// way there. Paths of the pod that are not written plainly could be any place.
func (m *mutation) placesFree() []string {
	var conditions []string
	for i := range m.each {
		e := &m.each[i]
		mounts := e.add.get("volumeMounts").items()
		if len(mounts) == 0 {
			continue
		}
		free := []string{appVariable + `.?volumeMounts.orValue([]).all(x, !x.mountPath.matches("//|/\\.\\.?(/|$)"))`}
		for j := range mounts {
			at, volume := mounts[j].get("mountPath").text, mounts[j].get("name").text
			free = append(free, unlessApp(&mounts[j], fmt.Sprintf(
				"%[1]s.?volumeMounts.orValue([]).all(x, x.name == %[2]s || !%[3]s) && %[1]s.?volumeDevices.orValue([]).all(x, !%[4]s)",
				appVariable, volume, samePlace("x.mountPath", at), samePlace("x.devicePath", at))))
		}
		for _, list := range lists() {
			if list == "containers" || e.initContainers {
				conditions = append(conditions, fmt.Sprintf("variables.%s.all(%s, !(%s) || (%s))",
					list, appVariable, m.isApp(e.where), all(slices.Clone(free)...)))
			}
		}
	}
	return conditions
}

// nodePort is the port of the node that a port takes, always or on the host
// network; nil is none.
func (m *mutation) nodePort(p *node) *node {
	if host := p.get("hostPort"); host != nil || !m.t.Spec.Match.HostNetwork {
		return host
	}
	return p.get("containerPort")
}

func portProtocol(p *node) string {
	if protocol := p.get("protocol"); protocol != nil {
		return protocol.text
	}
	return quote(string(corev1.ProtocolTCP))
}

// portsFree: no other container takes the port of the node. On the host network
// each port is one of the node's. Which address, and whether the other container
// is done by then, does not matter here.
func (m *mutation) portsFree() []string {
	const taken = `(variables.initContainers + variables.containers).filter(x, x.name != %q).all(x, x.?ports.orValue([]).all(y, ` +
		`(!has(y.hostPort) && !object.spec.?hostNetwork.orValue(false)) || (has(y.hostPort) ? y.hostPort : y.containerPort) != %s || ` +
		`y.?protocol.orValue("TCP") != %s))`
	var conditions []string
	claimed := map[string]bool{}
	for _, c := range m.newContainers() {
		for i := range c.get("ports").items() {
			p := &c.get("ports").items()[i]
			number := m.nodePort(p)
			if number == nil {
				continue
			}
			protocol := portProtocol(p)
			host, own := p.get("hostPort"), p.get("containerPort")
			if host != nil && m.t.Spec.Match.HostNetwork && host.text != own.text {
				conditions = append(conditions, fmt.Sprintf("!object.spec.?hostNetwork.orValue(false) || %s == %s", host.text, own.text))
			}
			condition := fmt.Sprintf(taken, c.name, number.text, protocol)
			if host == nil {
				condition = "!object.spec.?hostNetwork.orValue(false) || " + condition
			}
			conditions = append(conditions, unless(p, fmt.Sprintf("!variables.%s || %s", c.variable, condition)))
			if claimed[number.text+protocol] || !number.constant {
				m.problem(number.path, "that this port of the node is taken only once cannot be told here")
			}
			claimed[number.text+protocol] = true
		}
	}
	return conditions
}

// valuesRight: what expressions give is what the API server takes there.
func (m *mutation) valuesRight() []string {
	conditions := m.valueConditions(&m.pod, reflect.TypeFor[corev1.Pod]())
	for i := range m.each {
		add := &m.each[i].add
		conditions = append(conditions, m.valueConditions(add, reflect.TypeFor[corev1.Container]())...)
		conditions = append(conditions, m.mountsRight(add)...)
	}
	for _, c := range m.newContainers() {
		for _, condition := range append(m.mountsRight(c.node), m.resourcesRight(c.node)...) {
			conditions = append(conditions, unless(c.node, condition))
		}
	}
	return conditions
}

// mountsRight: no two mounts at one place, and a volume for each.
func (m *mutation) mountsRight(container *node) []string {
	var conditions []string
	mounts := container.get("volumeMounts").items()
	if container.get("volumeDevices") != nil {
		m.problem(container.get("volumeDevices").path, "this kind of policy cannot tell whether its places are free")
	}
	for i := range mounts {
		at := mounts[i].get("mountPath")
		if at.constant && path.Clean(unquoted(at)) != unquoted(at) {
			m.problem(at.path, "the path must be written plainly, without a slash at its end, // or ..")
		}
		if !at.constant {
			conditions = append(conditions, fmt.Sprintf("%s != %q", at.text, tokenPath))
		} else if unquoted(at) == tokenPath && mounts[i].when != "" {
			m.problem(at.path, "whether the place of the API token is taken must not depend on a ${when} here")
		}
		for j := range mounts[:i] {
			if other := mounts[j].get("mountPath"); !at.constant || !other.constant {
				conditions = append(conditions, fmt.Sprintf("%s != %s", at.text, other.text))
			}
		}
		if !mounts[i].get("name").constant {
			m.problem(mounts[i].get("name").path, "the name of a mount's volume must be constant here")
			continue
		}
		volumes := m.pod.at("spec", "volumes").items()
		for j := range volumes {
			if v := &volumes[j]; v.when != "" && v.get("name").text == mounts[i].get("name").text {
				conditions = append(conditions, unless(&mounts[i], fmt.Sprintf("%s || variables.volumes.exists(x, x.name == %s)", v.when, v.get("name").text)))
			}
		}
	}
	return conditions
}

// resourcesRight: a request is not more than its limit.
func (m *mutation) resourcesRight(container *node) []string {
	var conditions []string
	requests := container.at("resources", "requests")
	for i := range requests.itemsOrMembers() {
		name, request := requests.names[i], &requests.children[i]
		limit := container.at("resources", "limits", name)
		if limit == nil || limit.text == request.text || request.constant && limit.constant {
			continue // of constants that was seen to when the template was loaded
		}
		t := reflect.TypeFor[resource.Quantity]()
		asked, most := request.scalar(t), limit.scalar(t)
		condition := fmt.Sprintf("quantity(%s).compareTo(quantity(%s)) <= 0", asked, most)
		if shared(name) {
			condition = "variables.podResources || " + condition
		}
		conditions = append(conditions, condition)
	}
	return conditions
}

func (n *node) itemsOrMembers() []node {
	if n == nil {
		return nil
	}
	return n.children
}
