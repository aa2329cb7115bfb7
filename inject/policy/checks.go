// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"reflect"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates"
)

// tokenPath is where a container has the pod's API token.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// valueConditions are what the values of expressions must hold to, or the API
// server would refuse the pod that they are put into: the checks that the engine
// makes when it renders. A value under a ${when} need hold only where that is true.
func (b *builder) valueConditions(n *node, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var found []string
	switch {
	case n.list:
		for i := range n.children {
			found = append(found, b.valueConditions(&n.children[i], t.Elem())...)
		}
	case n.object && t.Kind() == reflect.Map:
		for i := range n.children {
			found = append(found, b.valueConditions(&n.children[i], t.Elem())...)
		}
	case n.object:
		if t == reflect.TypeFor[corev1.Container]() {
			b.coupled(n)
		}
		if claim := n.get("persistentVolumeClaim"); t == reflect.TypeFor[corev1.Volume]() && (claim != nil || n.get("ephemeral") != nil) && b.t.HasForEach() {
			b.problem(n.path, "whether a container has this volume as a device cannot be checked here")
		}
		if n.ruled && t != reflect.TypeFor[corev1.ResourceRequirements]() { // whose sums the API server checks
			b.problem(n.path, "values of expressions that depend on each other cannot be checked here before they are added")
		}
		for i, name := range n.names {
			found = append(found, b.valueConditions(&n.children[i], fieldType(t, name))...)
		}
	case !n.constant:
		found = b.conditionsOf(n, t)
	}
	if n.container && len(found) > 0 && !n.object && !n.list {
		b.problem(n.path, "a value that depends on the app container cannot be checked here before it is added")
	}
	if n.when != "" && len(found) > 0 {
		return []string{unless(n, all(found...))}
	}
	return found
}

// coupled finds what the rest of a pod may rule out, which the engine looks for.
func (b *builder) coupled(container *node) {
	found := container.get("resizePolicy")
	for _, path := range [][]string{{"volumeDevices"}, {"lifecycle", "stopSignal"}, {"lifecycle", "preStop", "sleep"}, {"lifecycle", "postStart", "sleep"}, {"securityContext", "procMount"}} {
		if n := container.at(path...); n != nil {
			found = n
		}
	}
	if found != nil {
		b.problem(found.path, "whether the pod can have this depends on the rest of it, which cannot be checked here")
	}
}

// conditionsOf are those of one value, by its type and place.
func (b *builder) conditionsOf(n *node, t reflect.Type) []string {
	var found []string
	text := n.text
	if !regexp.MustCompile(`^[a-zA-Z_.]+$`).MatchString(text) {
		text = "(" + text + ")"
	}
	add := func(format string) { found = append(found, strings.ReplaceAll(format, "VALUE", text)) }
	place := regexp.MustCompile(`\[\d+\]`).ReplaceAllString(n.path, "[]")
	field := place[strings.LastIndexByte(place, '.')+1:]
	known := false
	isInt := n.typ.TypeName() == "int"
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		add(strings.ReplaceAll(templates.ParamType("quantity").Policy().Check, "TEXT", "string(VALUE)") + ` && quantity(string(VALUE)).compareTo(quantity("0")) >= 0`)
	case t == reflect.TypeFor[intstr.IntOrString]() && !isInt:
		add(`VALUE.matches("^([a-z0-9]+-?)*[a-z0-9]+$") && VALUE.matches("[a-z]") && size(VALUE) <= 15`)
	case t == reflect.TypeFor[intstr.IntOrString](), field == "containerPort", field == "hostPort":
		add(`VALUE >= 1 && VALUE <= 65535`)
	case t.Kind() == reflect.Int32:
		add(`VALUE >= 0 && VALUE <= 2147483647`)
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		add(`VALUE >= 0`)
	case t.Kind() == reflect.Slice:
		b.problem(n.path, "a whole list from an expression cannot be checked here before it is added")
	case t.Kind() == reflect.String && t != reflect.TypeFor[string]():
		b.enumerated(n, t, add)
	}
	if strings.HasPrefix(place, "spec.pod.metadata.labels") {
		add(`VALUE.matches("^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$") && size(VALUE) <= 63`)
		return found
	}
	if strings.HasSuffix(place, ".env[].name") {
		b.problem(n.path, "the name of a variable must be constant here")
	}
	switch n.place {
	case "SecurityContext.runAsUser", "SecurityContext.runAsGroup", "PodSecurityContext.fsGroup", "PodSecurityContext.supplementalGroups":
		known = true
		add(`VALUE <= 2147483647`)
	case "SecretVolumeSource.defaultMode", "ConfigMapVolumeSource.defaultMode", "ProjectedVolumeSource.defaultMode", "DownwardAPIVolumeSource.defaultMode":
		known = true
		add(`VALUE <= 511`)
	case "VolumeMount.subPath":
		known = true
		add(`!VALUE.startsWith("/")`)
	case "ConfigMapKeySelector.name", "SecretKeySelector.name", "ConfigMapEnvSource.name", "SecretEnvSource.name":
		known = true
		add(`VALUE.matches("^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$") && size(VALUE) <= 253`)
	case "Container.image", "ContainerPort.containerPort", "ContainerPort.hostPort", "GRPCAction.port", "HostPathVolumeSource.path", "VolumeDevice.devicePath":
		known = true // below
	}
	if n.ruled && !known {
		b.problem(n.path, "the value of an expression cannot be checked here before it is added")
	}
	switch field {
	case "image":
		add(`VALUE != "" && VALUE.trim() == VALUE`)
	case "name", "secretName", "claimName":
		add(`VALUE != ""`)
	case "devicePath":
		add(`VALUE != "" && !VALUE.matches("(^|/)\\.\\.(/|$)")`)
	case "mountPath":
		// Cleaned already, so that equal places are equal texts.
		add(`VALUE.matches("^(/[^/]+)+$") && !VALUE.matches("/\\.\\.?(/|$)")`)
		if strings.HasPrefix(place, "spec.forEachContainer") {
			add(`VALUE != "` + tokenPath + `"`)
		}
	case "subPath", "path":
		add(`!VALUE.matches("(^|/)\\.\\.(/|$)")`)
	case "ip", "key":
		b.problem(n.path, "the value of an expression cannot be checked here before it is added")
	}
	return found
}

// enumerated checks a value of a type with few values.
func (b *builder) enumerated(n *node, t reflect.Type, add func(string)) {
	switch t {
	case reflect.TypeFor[corev1.PullPolicy]():
		add(`VALUE in ["Always", "IfNotPresent", "Never"]`)
	case reflect.TypeFor[corev1.Protocol]():
		add(`VALUE in ["TCP", "UDP", "SCTP"]`)
	case reflect.TypeFor[corev1.StorageMedium]():
		add(`VALUE in ["", "Memory", "HugePages"]`)
	default:
		b.problem(n.path, "the value of an expression cannot be checked here before it is added")
	}
}
