// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"slices"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/validation"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// CheckPodOS reports fields that a pod cannot have on an operating system of the template.
func (c *Checker) CheckPodOS(spec *yaml.Node, path string) {
	if c.os.Includes(corev1.Windows) {
		const cannot = "a pod on Windows cannot have this (spec.match.os)"
		c.ForbidKeys(spec, path, cannot, "shareProcessNamespace")
		c.ForbidKeys(yamlnode.Child(spec, "securityContext"), path+".securityContext", cannot, "fsGroup", "supplementalGroups")
	}
}

// CheckContainerOS reports fields that a container cannot have on an operating system of the template.
func (c *Checker) CheckContainerOS(container *yaml.Node, path string) {
	context := yamlnode.Child(container, "securityContext")
	if c.os.Includes(corev1.Linux) {
		// Other windowsOptions are allowed. They are left out for pods that must not have them.
		c.ForbidKeys(yamlnode.Child(context, "windowsOptions"), path+".securityContext.windowsOptions", "needs spec.match.os: windows", "hostProcess")
	}
	if !c.os.Includes(corev1.Windows) {
		return
	}
	c.ForbidKeys(context, path+".securityContext", "a container on Windows cannot have this (spec.match.os)", validation.NotOnWindows()...)
	signal := yamlnode.Child(yamlnode.Child(container, "lifecycle"), "stopSignal")
	if signal != nil && !slices.Contains([]string{string(corev1.SIGTERM), string(corev1.SIGKILL)}, signal.Value) {
		c.ReportProblem(signal, path+".lifecycle.stopSignal", "must be SIGTERM or SIGKILL on Windows (spec.match.os)")
	}
}
