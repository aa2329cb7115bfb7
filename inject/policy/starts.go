// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
)

// The conditions in this file are those of the engine that the kubelet starts the containers (inject/starts.go). What
// no condition expresses is a problem of the template.

// startsRight returns the conditions that the kubelet starts the pod with the template's containers.
func (m *mutation) startsRight() (conditions []string) {
	for _, c := range m.containers {
		m.portsKnown(c.node)
		m.subPathsKnown(c.node)
		m.mountsKnown(c.node)
		m.containersKnown(c.get("env"))
		if condition := m.notAsRoot(c.node); condition != "" {
			conditions = append(conditions, c.unless(condition))
		}
	}
	for i := range m.each {
		for _, mount := range m.each[i].add.get("volumeMounts").items() {
			if expr := mount.get("subPathExpr"); expr != nil {
				m.problem(expr.path, "a policy cannot check whether the variables of the container have values")
			}
			m.notReserved(&mount)
		}
		m.containersKnown(m.each[i].add.get("env"))
	}
	volumes := m.pod.get("spec", "volumes").items()
	for i := range volumes {
		v := &volumes[i]
		m.containersKnown(v)
		if medium := v.get("emptyDir", "medium"); medium != nil && (!medium.constant || strings.HasPrefix(medium.unquoted(), string(corev1.StorageMediumHugePages))) {
			m.problem(medium.path, "a policy cannot check whether the pod requests huge pages of that size")
		}
		if claim := v.get("persistentVolumeClaim", "claimName"); claim != nil {
			conditions = append(conditions, v.always(fmt.Sprintf("%s.all(v, v.?persistentVolumeClaim.?claimName.orValue(\"\") != %s || !%s.exists(x, x.?volumeDevices.orValue([]).exists(y, y.name == v.name)))",
				podVolumes, claim.text, bothLists)))
		}
	}
	return conditions
}

// notAsRoot returns the condition that a container does not run as root, or that runAsNonRoot is not true for it.
func (m *mutation) notAsRoot(container *node) string {
	nonRoot := ofPodUnless(container.get("securityContext", "runAsNonRoot"), "runAsNonRoot", "false")
	user, root := ofPodUnless(container.get("securityContext", "runAsUser"), "runAsUser", "-1"), "0"
	if m.t.Spec.Match.OS == corev1.Windows {
		user, root = ofPodUnless(container.get("securityContext", "windowsOptions", "runAsUserName"), "windowsOptions.?runAsUserName", `""`)+".lowerAscii()", `"containeradministrator"`
	}
	own := container.get("securityContext")
	if nonRoot == "false" || m.t.Spec.Match.OS != corev1.Windows && own.get("runAsUser") != nil && own.get("runAsUser").constant && own.get("runAsUser").when == "" && user != root {
		return ""
	}
	return fmt.Sprintf("!(%s) || %s != %s", nonRoot, user, root)
}

// ofPodUnless returns the value of a field of a container's security context, or else of the pod's, in CEL.
func ofPodUnless(own *node, field, none string) string {
	pod := fmt.Sprintf("object.spec.?securityContext.?%s.orValue(%s)", field, none)
	switch {
	case own == nil:
		return pod
	case own.when != "":
		return fmt.Sprintf("((%s) ? (%s) : %s)", own.when, own.text, pod)
	case own.constant:
		return own.text
	}
	return "(" + own.text + ")"
}

// portsKnown reports a probe or a hook that may name a port that the container does not declare.
func (m *mutation) portsKnown(container *node) {
	for _, path := range [][]string{
		{"startupProbe", "httpGet"},
		{"startupProbe", "tcpSocket"},
		{"readinessProbe", "httpGet"},
		{"readinessProbe", "tcpSocket"},
		{"livenessProbe", "httpGet"},
		{"livenessProbe", "tcpSocket"},
		{"lifecycle", "postStart", "httpGet"},
		{"lifecycle", "preStop", "httpGet"},
	} {
		port := container.get(append(path, "port")...)
		if port == nil || port.constant && !strings.HasPrefix(port.text, `"`) || !port.constant && port.typ != nil && port.typ.IsExactType(cel.IntType) {
			continue
		}
		fixed := func(p node) bool { return p.when == "" && (p.get("name") == nil || p.get("name").constant) }
		if ports := container.get("ports"); !port.constant || ports != nil && !(ports.list && !slices.ContainsFunc(ports.items(), func(p node) bool { return !fixed(p) })) {
			m.problem(port.path, "a policy cannot check whether the container has a port with this name")
		}
	}
}

// subPathsKnown reports a sub path that depends on variables whose values are computed.
func (m *mutation) subPathsKnown(container *node) {
	for _, mount := range container.get("volumeMounts").items() {
		expr := mount.get("subPathExpr")
		if expr == nil {
			continue
		}
		for _, v := range container.get("env").items() {
			if v.when != "" || v.get("value") != nil && !v.get("value").constant {
				m.problem(expr.path, "a policy cannot check whether the variables of the container have values")
				break
			}
		}
	}
}

// containersKnown reports references to resources of a container that the pod may not have.
func (m *mutation) containersKnown(n *node) {
	if n == nil {
		return
	}
	if name := n.get("resourceFieldRef", "containerName"); name != nil && !slices.ContainsFunc(m.containers, func(c newContainer) bool { return c.when == "" && name.constant && c.name == name.unquoted() }) {
		m.problem(name.path, "a policy cannot check whether the pod has this container")
	}
	for i := range n.children {
		m.containersKnown(&n.children[i])
	}
}

// mountsKnown reports mounts of a template's container inside of each other that may not be possible.
func (m *mutation) mountsKnown(container *node) {
	mounts := container.get("volumeMounts").items()
	for i := range mounts {
		inner := &mounts[i]
		m.notReserved(inner)
		if written, part := m.isWritten(inner); !written || !part {
			continue
		}
		for j := range mounts {
			outer, at := mounts[j].get("mountPath"), inner.get("mountPath")
			if written, _ := m.isWritten(&mounts[j]); !written || i == j {
				continue
			}
			if !outer.constant || !at.constant || strings.HasPrefix(at.unquoted(), strings.TrimSuffix(outer.unquoted(), "/")+"/") {
				m.problem(at.path, "a policy cannot check whether this can be mounted inside of another volume")
				break
			}
		}
	}
}

// notReserved reports a mount at a place of the container runtime.
func (m *mutation) notReserved(mount *node) {
	if at := mount.get("mountPath"); at != nil && at.constant && templates.ReservedPath(at.unquoted()) != "" && !m.isHostPath(mount) {
		m.problem(at.path, "%s", templates.ReservedPath(at.unquoted()))
	}
}

// volumeOf returns the template's volume of a mount, or nil.
func (m *mutation) volumeOf(mount *node) *node {
	volumes := m.pod.get("spec", "volumes").items()
	for i := range volumes {
		if name := mount.get("name"); name != nil && volumes[i].get("name") != nil && volumes[i].get("name").text == name.text {
			return &volumes[i]
		}
	}
	return nil
}

func (m *mutation) isHostPath(mount *node) bool {
	return m.volumeOf(mount).get("hostPath") != nil
}

// isWritten reports whether a mount may be of a volume that the kubelet writes, and whether it is a part of that.
func (m *mutation) isWritten(mount *node) (written, part bool) {
	volume := m.volumeOf(mount)
	written = volume == nil
	for _, kind := range []string{"configMap", "secret", "downwardAPI", "projected"} {
		written = written || volume.get(kind) != nil
	}
	return written, mount.get("subPath") != nil || mount.get("subPathExpr") != nil
}

// mountable returns the condition that a mount is possible beside those of a container x.
func (m *mutation) mountable(mount *node, x string) string {
	at := cleaned(mount.get("mountPath"))
	written, part := m.isWritten(mount)
	message := x + `.?terminationMessagePath.orValue("` + corev1.TerminationMessagePathDefault + `")`
	var conditions []string
	if !part {
		conditions = append(conditions, fmt.Sprintf("%s != %s", message, at))
	}
	if written && !part {
		conditions = append(conditions, fmt.Sprintf(`%s != "/etc" && !%s.startsWith(%[1]s + "/")`, at, message),
			fmt.Sprintf(`%s.?volumeMounts.orValue([]).all(y, !y.mountPath.startsWith(%s + "/") || y.?subPath.orValue("") + y.?subPathExpr.orValue("") == "")`, x, at))
	}
	if written && part {
		conditions = append(conditions, fmt.Sprintf(`%s.?volumeMounts.orValue([]).all(y, !%s.startsWith(y.mountPath.endsWith("/") ? y.mountPath : y.mountPath + "/"))`, x, at))
	}
	if !mount.get("mountPath").constant && !m.isHostPath(mount) {
		conditions = append(conditions, fmt.Sprintf(`!(%s in ["/dev", "/proc"]) && !%[1]s.startsWith("/proc/")`, at))
	}
	return all(conditions...)
}

// mountsPossible returns the conditions that the mounts for app containers of a list are possible.
func (m *mutation) mountsPossible(list string) (conditions []string) {
	for i := range m.each {
		if list == "initContainers" && !m.each[i].initContainers {
			continue
		}
		for _, mount := range m.each[i].add.get("volumeMounts").items() {
			if mount.get("mountPath") != nil {
				conditions = append(conditions, mount.unless(m.mountable(&mount, appVariable)))
			}
		}
	}
	return conditions
}
