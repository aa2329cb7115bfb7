// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
)

// valueConditions returns the conditions for the values of expressions in a node. Without them, the API server would reject
// the pod that gets the values. They are the checks that the engine makes when it renders. A value under a ${when}
// is checked only if that is true.
func (b *builder) valueConditions(n *node) []string {
	var found []string
	if n.object {
		b.reportCoupled(n)
	}
	for i := range n.children {
		found = append(found, b.valueConditions(&n.children[i])...)
	}
	if !n.object && !n.list && !n.constant {
		if found = b.checksOf(n); n.container && len(found) > 0 {
			b.addProblem(n.path, "a policy cannot check a value that depends on the app container before it adds the value")
		}
	}
	if n.when != "" && len(found) > 0 {
		return []string{n.whenMaybePresent(allTrue(found...))}
	}
	return found
}

// reportCoupled reports problems with objects whose validity depends on the rest of the pod, or on values
// of expressions.
func (b *builder) reportCoupled(n *node) {
	if n.ruled && n.field.GoType != schema.ResourcesType() { // see resourcesRight
		b.addProblem(n.path, "a policy cannot check values of expressions that depend on each other")
	}
	switch n.field.GoType {
	case schema.ContainerType():
		paths := [][]string{{"resizePolicy"}, {"volumeDevices"}, {"lifecycle", "stopSignal"}, {"lifecycle", "preStop", "sleep"}, {"lifecycle", "postStart", "sleep"}, {"securityContext", "procMount"}}
		if b.t.Spec.Match.OS.Includes(corev1.Linux) {
			paths = append(paths, []string{"securityContext", "windowsOptions"})
		}
		for _, path := range paths {
			if found := n.get(path...); found != nil {
				b.addProblem(found.path, "a policy cannot check whether the rest of the pod allows this")
			}
		}
	case schema.VolumeType():
		if (n.get("persistentVolumeClaim") != nil || n.get("ephemeral") != nil) && b.t.HasForEach() {
			b.addProblem(n.path, "a policy cannot check whether a container has this volume as a device")
		}
	}
}

// checksOf returns the conditions for one value.
func (b *builder) checksOf(n *node) []string {
	switch {
	case n.apiField == "EnvVar.name":
		b.addProblem(n.path, "a name must be constant here")
	case n.apiField == "VolumeMount.name":
		b.addProblem(n.path, "a policy cannot check whether the pod has a volume whose name is an expression")
	case n.ruled:
		b.addProblem(n.path, "a policy cannot check the value of an expression here before it adds the value")
	}
	rules := n.rules
	if n.apiField == "VolumeMount.mountPath" { // of cleaned paths, equal places are equal strings
		rules = append(rules, `VALUE.matches("^(/[^/]+)+$") && !VALUE.matches("/\\.\\.?(/|$)")`)
	}
	text := n.text
	if !regexp.MustCompile(`^[a-zA-Z_.]+$`).MatchString(text) {
		text = "(" + text + ")"
	}
	found := make([]string, len(rules))
	for i, rule := range rules {
		found[i] = strings.ReplaceAll(rule, "VALUE", text)
	}
	return found
}
