// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
)

// declareConditions declares what the engine checks before it adds anything. If one of these conditions is
// false, the policy leaves the pod unchanged.
func (m *mutation) declareConditions() {
	m.requireAll("valid", m.declareInputs(true)...)
	m.requireAll("condition", m.condition)
	if len(m.containers) > 0 {
		m.declareVariable("podResources", "size(object.spec.?resources.orValue({})) > 0")
		m.declareVariable("injected", fmt.Sprintf("%q in variables.annotations", m.t.Annotation(templates.AnnotationInjected)))
		m.declareVariable("token", m.tokenVolume())
	}
	m.requireAll("valuesRight", m.valuesRight()...)
	m.requireAll("starts", m.startsRight()...)
	m.prepareFragment()
	for _, c := range m.containers {
		m.declareVariable(c.variable, allTrue(c.when, fmt.Sprintf("!%s.exists(x, x.name == %q)", bothLists, c.name)))
	}
	m.requireAll("placesFree", conflictConditions(m.podAdditions())...)
	for _, list := range containerLists() {
		if free := append(conflictConditions(m.appAdditions(list)), m.mountsPossible(list)...); len(free) > 0 {
			m.requireAll(list+"Free", fmt.Sprintf("variables.%s.all(%s, !(%s) || (%s))", list, appVariable, m.isApp(m.each[0].where), allTrue(free...)))
		}
	}
	portsFree, _ := m.portConditions()
	m.requireAll("portsFree", portsFree...)
	m.declareVariable("fit", allTrue(m.fit...))
}

// conflictConditions returns the conditions of additions. If one is false, nothing is added.
func conflictConditions(additions []addition) (all []string) {
	for _, a := range additions {
		if a.conflict != "" {
			all = append(all, a.conflict)
		}
	}
	return all
}

// requireAll declares a variable that must be true.
func (m *mutation) requireAll(name string, conditions ...string) {
	if condition := allTrue(conditions...); condition != "true" {
		m.declareVariable(name, condition)
		m.fit = append(m.fit, "variables."+name)
	}
}

// tokenVolume returns the name of the volume for the path at which the ServiceAccount plugin would mount
// the API token, or "".
func (m *mutation) tokenVolume() string {
	volume := quoteString(validation.NoTokenVolume)
	if m.t.Spec.ServiceAccountToken == v1alpha1.Inherit {
		var brought []string
		for _, t := range m.set.Templates {
			brought = append(brought, t.Containers...)
		}
		user := fmt.Sprintf("%s.filter(x, !(x.name in [%s]))", bothLists, quoteList(brought))
		declined := fmt.Sprintf("size(%[1]s) > 0 && %[1]s.all(x, x.?volumeMounts.orValue([]).exists(y, y.mountPath == %[2]q))", user, validation.TokenPath)
		named := fmt.Sprintf("%s.filter(x, x.name.startsWith(%q))", podVolumes, validation.TokenVolumePrefix)
		volume = fmt.Sprintf("(%[1]s.filter(x, x.?projected.?sources.orValue([]).exists(y, has(y.serviceAccountToken))).map(x, x.name) + %[1]s.map(x, %[3]q) + [%[2]s ? %[3]q : \"\"])[0]", named, declined, validation.NoTokenVolume)
	}
	return fmt.Sprintf("object.spec.?automountServiceAccountToken.orValue(true) ?\n  %s :\n  \"\"", volume)
}

// isApp returns the condition that a container is the user's own and that the entry applies to it.
// For a required template, an annotation alone cannot exempt a container.
func (m *mutation) isApp(where string) string {
	var brought []string
	for _, t := range m.set.Templates {
		images := map[string]*node{}
		if m.t.Spec.Required {
			for _, c := range newMutation(&builder{set: m.set, t: t}).containers {
				images[c.name] = c.get("image")
			}
		}
		for _, name := range t.Containers {
			is := fmt.Sprintf("%s.name == %q && variables.%s", appVariable, name, markedVariable(t))
			if image := images[name]; image != nil {
				is += fmt.Sprintf(" && %s.image == %s", appVariable, image.text)
				if t != m.t && !image.constant {
					m.addProblem("spec.forEachContainer", "the template is required, but a policy cannot determine whether a container belongs to the template %s, because its image is not constant", t.Name)
				}
			}
			brought = append(brought, is)
		}
	}
	return allTrue("!("+anyTrue(brought...)+")", where)
}

// portConditions returns the conditions that no other container uses the node's ports of the template's
// containers. It also returns claims to these ports. On the host network, each port is one of the
// node's. The conditions ignore the address, and whether the other container has ended by then.
func (m *mutation) portConditions() (conditions []string, claims []claim) {
	const onHost = "object.spec.?hostNetwork.orValue(false)"
	for i := range m.containers {
		c := &m.containers[i]
		for j := range c.get("ports").items() {
			p := &c.get("ports").children[j]
			number, own, protocol, always := p.get("hostPort"), p.get("containerPort"), quoteString(string(corev1.ProtocolTCP)), ""
			if n := p.get("protocol"); n != nil {
				protocol = n.text
			}
			switch host := m.t.Spec.Match.HostNetwork; {
			case number == nil && !host:
				continue
			case number == nil:
				number, always = own, "!"+onHost+" || "
			case host && number.text != own.text:
				conditions = append(conditions, fmt.Sprintf("!%s || %s == %s", onHost, number.text, own.text))
			}
			conditions = append(conditions, p.whenPresent(fmt.Sprintf("!variables.%s || %s%s.filter(x, x.name != %q).all(x, x.?ports.orValue([]).all(y, "+
				"(!has(y.hostPort) && !%s) || (has(y.hostPort) ? y.hostPort : y.containerPort) != %s || y.?protocol.orValue(\"TCP\") != %s))",
				c.variable, always, bothLists, c.name, onHost, number.text, protocol)))
			port := claim{fmt.Sprintf("the port %s/%s of the node", number.text, strings.Trim(protocol, `"`)), m.t.Name, number.path}
			if !number.constant || slices.ContainsFunc(claims, func(c claim) bool { return c.what == port.what }) {
				m.addProblem(number.path, "a policy cannot determine whether only one container uses this port of the node")
			}
			claims = append(claims, port)
		}
	}
	return conditions, claims
}

// valuesRight returns the conditions that the API server accepts the values of expressions.
func (m *mutation) valuesRight() []string {
	conditions := m.valueConditions(&m.pod)
	for i := range m.each {
		conditions = append(append(conditions, m.valueConditions(&m.each[i].add)...), m.mountsRight(&m.each[i].add)...)
	}
	for _, c := range m.containers {
		for _, condition := range append(m.mountsRight(c.node), resourcesRight(c.node)...) {
			conditions = append(conditions, c.whenPresent(condition))
		}
	}
	return conditions
}

// mountsRight returns the conditions that no two mounts have the same path, and that each has a
// volume.
func (m *mutation) mountsRight(container *node) []string {
	var conditions []string
	mounts, volumes := container.get("volumeMounts").items(), m.pod.get("spec", "volumes").items()
	for i := range mounts {
		at, name := mounts[i].get("mountPath"), mounts[i].get("name")
		for j := range mounts[:i] {
			if other := mounts[j].get("mountPath"); !at.constant || !other.constant {
				conditions = append(conditions, fmt.Sprintf("%s != %s", cleanedPath(at), cleanedPath(other)))
			}
		}
		for j := range volumes {
			if v := &volumes[j]; v.when != "" && v.get("name").text == name.text {
				conditions = append(conditions, mounts[i].whenMaybePresent(fmt.Sprintf("%s || %s.exists(x, x.name == %s)", v.when, podVolumes, name.text)))
			}
		}
	}
	return conditions
}

// resourcesRight returns the conditions that no request exceeds its limit, and that the memory is enough to start.
func resourcesRight(container *node) []string {
	var conditions []string
	if memory := container.get("resources", "limits", "memory"); memory != nil && !memory.constant {
		value := fmt.Sprintf("quantity(%s)", memory.celValue(""))
		conditions = append(conditions, memory.whenPresent(fmt.Sprintf("%s.compareTo(quantity(\"%d\")) >= 0 || %[1]s.compareTo(quantity(\"0\")) == 0", value, validation.LeastMemory)))
	}
	requests := container.get("resources", "requests")
	for i := range requests.members() {
		name, request := requests.names[i], &requests.children[i]
		limit := container.get("resources", "limits", name)
		if limit == nil || limit.text == request.text || request.constant && limit.constant {
			continue // constants were checked when the template was loaded
		}
		condition := fmt.Sprintf("quantity(%s).compareTo(quantity(%s)) <= 0", request.celValue(""), limit.celValue(""))
		if isPodLevel(name) {
			condition = "variables.podResources || " + condition
		}
		conditions = append(conditions, condition)
	}
	return conditions
}
