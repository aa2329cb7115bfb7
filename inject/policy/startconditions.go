// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/validation"
)

// The conditions in this file are those of the engine that the kubelet starts the containers (inject/kubelet). What
// no condition expresses is a problem of the template.

// startsRight returns the conditions that the kubelet starts the pod with the template's containers.
func (m *mutation) startsRight() (conditions []string) {
	for _, c := range m.containers {
		m.portsKnown(c.node)
		m.subPathsKnown(c.node)
		m.mountsKnown(c.node)
		m.containersKnown(c.get("env"))
		if condition := m.notAsRoot(c.node); condition != "" {
			conditions = append(conditions, c.whenPresent(condition))
		}
	}
	for i := range m.each {
		for _, mount := range m.each[i].add.get("volumeMounts").items() {
			if expr := mount.get("subPathExpr"); expr != nil {
				m.addProblem(expr.path, "a policy cannot check whether the variables of the container have values")
			}
			m.notReserved(&mount)
		}
		m.containersKnown(m.each[i].add.get("env"))
	}
	volumes := m.pod.get("spec", "volumes").items()
	for i := range volumes {
		v := &volumes[i]
		m.containersKnown(v)
		if medium := v.get("emptyDir", "medium"); medium != nil && (!medium.constant || strings.HasPrefix(medium.constantString(), string(corev1.StorageMediumHugePages))) {
			m.addProblem(medium.path, "a policy cannot check whether the pod requests huge pages of that size")
		}
		if claim := v.get("persistentVolumeClaim", "claimName"); claim != nil {
			conditions = append(conditions, v.whenMaybePresent(fmt.Sprintf("%s.all(v, v.?persistentVolumeClaim.?claimName.orValue(\"\") != %s || !%s.exists(x, x.?volumeDevices.orValue([]).exists(y, y.name == v.name)))",
				podVolumes, claim.text, bothLists)))
		}
	}
	return conditions
}

// notAsRoot returns the condition that a container does not run as root, or that runAsNonRoot is not true for it.
func (m *mutation) notAsRoot(container *node) string {
	own := container.get("securityContext")
	nonRoot := ofPodUnless(own.get("runAsNonRoot"), "runAsNonRoot", "false")
	if nonRoot == "false" {
		return ""
	}
	var conditions []string
	if user := own.get("runAsUser"); m.t.Spec.Match.OS.Includes(corev1.Linux) && (user == nil || !user.constant || user.when != "" || user.text == "0") {
		conditions = append(conditions, fmt.Sprintf("!(%s) || %s != 0", nonRoot, ofPodUnless(user, "runAsUser", "-1")))
	}
	if m.t.Spec.Match.OS.Includes(corev1.Windows) {
		name := ofPodUnless(own.get("windowsOptions", "runAsUserName"), "windowsOptions.?runAsUserName", `""`)
		conditions = append(conditions, fmt.Sprintf(`!(%s) || %s.lowerAscii() != "containeradministrator"`, nonRoot, name))
	}
	if len(conditions) == 0 {
		return ""
	}
	return allTrue(conditions...)
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
			m.addProblem(port.path, "a policy cannot check whether the container has a port with this name")
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
				m.addProblem(expr.path, "a policy cannot check whether the variables of the container have values")
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
	if name := n.get("resourceFieldRef", "containerName"); name != nil && !slices.ContainsFunc(m.containers, func(c newContainer) bool { return c.when == "" && name.constant && c.name == name.constantString() }) {
		m.addProblem(name.path, "a policy cannot check whether the pod has this container")
	}
	for i := range n.children {
		m.containersKnown(&n.children[i])
	}
}

// mountsKnown reports mounts of a template's container inside of each other that may not be possible, and a working directory
// that may not be there.
func (m *mutation) mountsKnown(container *node) {
	mounts := container.get("volumeMounts").items()
	for i := range mounts {
		inner := &mounts[i]
		m.notReserved(inner)
		at := inner.get("mountPath")
		for j := range mounts {
			outer := mounts[j].get("mountPath")
			if i == j || m.isRoomy(&mounts[j], inner) {
				continue
			}
			if !outer.constant || !at.constant || isInside(at.constantString(), outer.constantString()) {
				m.addProblem(at.path, "a policy cannot check whether this can be mounted inside of another volume")
				break
			}
		}
		if dir := container.get("workingDir"); dir != nil && m.kindOf(inner) != otherVolume {
			if !dir.constant || !at.constant || isInside(dir.constantString()+"/", at.constantString()) {
				m.addProblem(dir.path, "a policy cannot check whether the volume has this directory")
			}
		}
	}
}

func isInside(path, directory string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}

// isRoomy reports whether one mount surely can be inside of another one of the template's.
func (m *mutation) isRoomy(outer, inner *node) bool {
	switch m.kindOf(outer) {
	case otherVolume:
		return true
	case writtenVolume:
		return m.kindOf(inner) == otherVolume && inner.get("subPath") == nil && inner.get("subPathExpr") == nil || m.kindOf(inner) == writtenVolume || m.kindOf(inner) == emptyVolume
	}
	return false
}

// volumeKind is what a policy knows about a mount.
type volumeKind int

const (
	otherVolume   volumeKind = iota
	writtenVolume            // the kubelet writes it, and nothing else can be created inside of it
	emptyVolume              // it is read-only, and no container of the template writes to it
	aFile                    // it is a file, or may be one
)

func (m *mutation) kindOf(mount *node) volumeKind {
	volume := m.volumeOf(mount)
	written, part := m.isWritten(mount)
	hostPath := volume.get("hostPath", "type")
	switch {
	case written && part, hostPath != nil && (!hostPath.constant || !strings.HasPrefix(hostPath.constantString(), "Directory") && hostPath.constantString() != ""):
		return aFile
	case written:
		return writtenVolume
	case volume.get("emptyDir") != nil && mount.get("readOnly") != nil && !m.writesVolume(mount.get("name")):
		return emptyVolume
	}
	return otherVolume
}

// writesVolume reports whether a container of the template may write to a volume, or the pod's own containers.
func (m *mutation) writesVolume(volume *node) bool {
	is := func(mount node) bool {
		return mount.get("readOnly") == nil && mount.get("name") != nil && mount.get("name").text == volume.text
	}
	for _, c := range m.containers {
		if slices.ContainsFunc(c.get("volumeMounts").items(), is) {
			return true
		}
	}
	for i := range m.each {
		if slices.ContainsFunc(m.each[i].add.get("volumeMounts").items(), is) {
			return true
		}
	}
	return false
}

// notReserved reports a mount at a place of the container runtime.
func (m *mutation) notReserved(mount *node) {
	if at := mount.get("mountPath"); at != nil && at.constant && validation.ReservedPath(at.constantString()) != "" && !m.isHostPath(mount) {
		m.addProblem(at.path, "%s", validation.ReservedPath(at.constantString()))
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

// mountCondition returns the condition that a mount is possible beside those of a container x. It is stricter than the engine, which
// looks for what is inside of volumes.
func (m *mutation) mountCondition(mount *node, x string) string {
	at := cleanedPath(mount.get("mountPath"))
	_, part := m.isWritten(mount)
	kind := m.kindOf(mount)
	message := x + `.?terminationMessagePath.orValue("` + corev1.TerminationMessagePathDefault + `")`
	workingDir := x + `.?workingDir.orValue("")`
	mounts := x + ".?volumeMounts.orValue([])"
	const inside = `%s.startsWith(%s + "/")`
	around := fmt.Sprintf(`%s.startsWith(y.mountPath.endsWith("/") ? y.mountPath : y.mountPath + "/")`, at)
	ofY := func(is string) string {
		return podVolumes + ".exists(v, v.name == y.name && (" + is + "))"
	}
	const (
		written  = `has(v.configMap) || has(v.secret) || has(v.projected) || has(v.downwardAPI)`
		fileHost = `v.?hostPath.?type.orValue("") in ["File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice"]`
		partY    = `y.?subPath.orValue("") + y.?subPathExpr.orValue("") != ""`
	)
	conditions := []string{fmt.Sprintf("%s.all(y, !%s || !(%s && %s || y.?readOnly.orValue(false) && %s || %s))",
		mounts, around, partY, ofY(written), ofY("has(v.emptyDir)"), ofY(fileHost))}
	if !part && kind != aFile {
		conditions = append(conditions, fmt.Sprintf("%s != %s", message, at))
	}
	switch kind {
	case writtenVolume:
		conditions = append(conditions, fmt.Sprintf(`%s != "/etc"`, at), "!"+fmt.Sprintf(inside, message, at), "!"+fmt.Sprintf(inside, workingDir, at),
			fmt.Sprintf(`%s.all(y, !y.mountPath.startsWith(%s + "/") || !(%s) && !%s)`, mounts, at, partY, ofY(fileHost)))
	case emptyVolume:
		conditions = append(conditions, fmt.Sprintf(`%s != "/etc"`, at), "!"+fmt.Sprintf(inside, message, at), "!"+fmt.Sprintf(inside, workingDir, at),
			fmt.Sprintf(`%s.all(y, !y.mountPath.startsWith(%s + "/"))`, mounts, at))
	case aFile:
		conditions = append(conditions, fmt.Sprintf(`%s.all(y, !%s && !y.mountPath.startsWith(%s + "/"))`, mounts, around, at),
			"!"+fmt.Sprintf(inside, message, at), fmt.Sprintf(`!(%s + "/").startsWith(%s + "/")`, workingDir, at))
	}
	if !mount.get("mountPath").constant && !m.isHostPath(mount) {
		conditions = append(conditions, fmt.Sprintf(`!(%s in ["/dev", "/proc"]) && !%[1]s.startsWith("/proc/")`, at))
	}
	return allTrue(conditions...)
}

// mountsPossible returns the conditions that the mounts for app containers of a list are possible.
func (m *mutation) mountsPossible(list string) (conditions []string) {
	for i := range m.each {
		if list == "initContainers" && !m.each[i].initContainers {
			continue
		}
		for _, mount := range m.each[i].add.get("volumeMounts").items() {
			if mount.get("mountPath") != nil {
				conditions = append(conditions, mount.whenPresent(m.mountCondition(&mount, appVariable)))
			}
		}
	}
	return conditions
}
