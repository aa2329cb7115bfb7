// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

// podOS reports fields that a pod cannot have on the template's operating system.
func (c *checker) podOS(spec *yaml.Node, path string) {
	if c.os != corev1.Windows {
		return
	}
	const cannot = "a pod on Windows cannot have this (spec.match.os)"
	if found := child(spec, "shareProcessNamespace"); found != nil {
		c.problem(found, path+".shareProcessNamespace", cannot)
	}
	for _, name := range []string{"fsGroup", "supplementalGroups"} {
		if found := child(child(spec, "securityContext"), name); found != nil {
			c.problem(found, path+".securityContext."+name, cannot)
		}
	}
}

// containerOS reports fields that a container cannot have on the template's operating system.
func (c *checker) containerOS(container *yaml.Node, path string) {
	context := child(container, "securityContext")
	if c.os != corev1.Windows {
		if found := child(context, "windowsOptions"); found != nil {
			c.problem(found, path+".securityContext.windowsOptions", "needs spec.match.os: windows")
		}
		return
	}
	for _, name := range []string{
		"appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
		"allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
	} {
		if found := child(context, name); found != nil {
			c.problem(found, path+".securityContext."+name, "a container on Windows cannot have this (spec.match.os)")
		}
	}
	signal := child(child(container, "lifecycle"), "stopSignal")
	if signal != nil && !slices.Contains([]string{string(corev1.SIGTERM), string(corev1.SIGKILL)}, signal.Value) {
		c.problem(signal, path+".lifecycle.stopSignal", "must be SIGTERM or SIGKILL on Windows (spec.match.os)")
	}
}
