// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Injection must not make a valid pod invalid. Mistakes of the template alone are found when it is
// loaded or rendered (templates/validation). The rules in this file are those of the API server's
// validation that involve both the template's additions and the rest of the pod. The module
// e2e/validity compares them with Kubernetes' own code to find rules that are missing here.

// coupling is a rule for a field of a container. It is checked only for containers to which a
// template adds that field.
type coupling struct {
	field string
	// broken returns what is wrong and what to do, or "".
	broken func(pod, container *jsontree.Node) string
}

var couplings = [...]coupling{
	{"lifecycle", sleepsTooLong},
	{"securityContext", unmaskedProcMount},
	{"securityContext", otherSeccomp},
	{"securityContext", otherAppArmor},
	{"volumeDevices", devicesOfUser},
}

// BrokenCouplings yields the fields of a container that break a rule which involves the rest of the pod, and what is wrong and what to
// do. It considers only fields that the fragment has.
func BrokenCouplings(pod, container, fragment *jsontree.Node) iter.Seq2[string, string] {
	return func(yield func(field, why string) bool) {
		for _, rule := range couplings {
			if fragment.Get(rule.field) == nil {
				continue
			}
			if why := rule.broken(pod, container); why != "" && !yield(rule.field, why) {
				return
			}
		}
	}
}

// WithoutDisallowed returns a container of a template without optional fields that this pod does not allow. They are removed
// before the container is compared with the pod's, so that they never count as missing.
func WithoutDisallowed(nodes *jsontree.Arena, pod *jsontree.Node, container jsontree.Node) jsontree.Node {
	if resize := container.Get("resizePolicy"); resize != nil && pod.At("spec", "restartPolicy").IsText(string(corev1.RestartPolicyNever)) && restartsOnResize(resize) {
		container = nodes.Without(&container, "resizePolicy") // only the default, NotRequired, is allowed
	}
	os := pod.At("spec", "os", "name")
	if os == nil {
		container = withoutField(nodes, container, "lifecycle", "stopSignal")
	} else if os.IsText(string(corev1.Linux)) {
		container = withoutField(nodes, container, "securityContext", "windowsOptions")
	}
	return container
}

// withoutField returns a container without a field of one of its objects, and without the object if
// nothing is left of it.
func withoutField(nodes *jsontree.Arena, container jsontree.Node, object, field string) jsontree.Node {
	there := container.Get(object)
	if there.Get(field) == nil {
		return container
	}
	rest := nodes.Without(there, field)
	if len(rest.Members()) == 0 {
		return nodes.Without(&container, object)
	}
	return nodes.With(&container, object, rest)
}

func restartsOnResize(resizePolicy *jsontree.Node) bool {
	return slices.ContainsFunc(resizePolicy.Items(), func(item jsontree.Node) bool {
		return item.Get("restartPolicy").IsText(string(corev1.RestartContainer))
	})
}

// sleepsTooLong returns an error message if a hook sleeps longer than the pod's grace period, or "".
func sleepsTooLong(pod, container *jsontree.Node) string {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if n := pod.At("spec", "terminationGracePeriodSeconds"); n.Kind() == jsontree.Number { // a file may have null
		grace, _ = strconv.ParseInt(n.String(), 10, 64)
	}
	if grace < 0 { // also only in a file
		grace = 1 // SetDefaults_Pod
	}
	for _, hook := range []string{"preStop", "postStart"} {
		seconds := container.At("lifecycle", hook, "sleep", "seconds")
		if seconds == nil {
			continue
		}
		if s, err := strconv.ParseInt(seconds.String(), 10, 64); err == nil && s > grace {
			return fmt.Sprintf("the container %s sleeps for %d s in lifecycle.%s, but the pod's grace period is %d s; raise terminationGracePeriodSeconds to %d",
				container.Get("name").Text(), s, hook, grace, s)
		}
	}
	return ""
}

// unmaskedProcMount returns an error message if a container sees all of /proc in a pod without its own user namespace, or "".
func unmaskedProcMount(pod, container *jsontree.Node) string {
	if container.At("securityContext", "procMount").IsText(string(corev1.UnmaskedProcMount)) && pod.At("spec", "hostUsers").Kind() != jsontree.False {
		return "securityContext.procMount Unmasked needs hostUsers: false; set it in the pod"
	}
	return ""
}

// devicesOfUser returns an error message if the pod has its own user namespace, in which there are no block devices, or "".
func devicesOfUser(pod, _ *jsontree.Node) string {
	if pod.At("spec", "hostUsers").Kind() == jsontree.False {
		return "a pod with hostUsers: false cannot have volumeDevices"
	}
	return ""
}

// otherSeccomp returns an error message if the container has a seccomp profile as a field, and another one by the pod's annotation,
// which is the older form. It returns "" if they agree.
func otherSeccomp(pod, container *jsontree.Node) string {
	profile := container.At("securityContext", "seccompProfile")
	if profile == nil {
		return ""
	}
	key := corev1.SeccompContainerAnnotationKeyPrefix + container.Get("name").Text()
	annotation := pod.At("metadata", "annotations").Get(key)
	if annotation == nil {
		return ""
	}
	text, ok := annotation.Text(), false
	switch corev1.SeccompProfileType(profile.Get("type").Text()) {
	case corev1.SeccompProfileTypeUnconfined:
		ok = text == corev1.SeccompProfileNameUnconfined
	case corev1.SeccompProfileTypeRuntimeDefault:
		ok = text == corev1.SeccompProfileRuntimeDefault || text == corev1.DeprecatedSeccompProfileDockerDefault
	case corev1.SeccompProfileTypeLocalhost:
		ok = text == corev1.SeccompLocalhostProfileNamePrefix+profile.Get("localhostProfile").Text()
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("the pod's annotation %s contradicts securityContext.seccompProfile; remove the annotation", key)
}

// otherAppArmor is otherSeccomp for AppArmor profiles. On Windows, the API server does not compare them.
func otherAppArmor(pod, container *jsontree.Node) string {
	profile := container.At("securityContext", "appArmorProfile")
	if profile == nil || OS(pod) == string(corev1.Windows) {
		return ""
	}
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Get("name").Text()
	annotation := pod.At("metadata", "annotations").Get(key)
	if annotation == nil {
		return ""
	}
	want := ""
	switch corev1.AppArmorProfileType(profile.Get("type").Text()) {
	case corev1.AppArmorProfileTypeUnconfined:
		want = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeRuntimeDefault:
		want = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeLocalhost:
		want = corev1.DeprecatedAppArmorBetaProfileNamePrefix + profile.Get("localhostProfile").Text()
	}
	if annotation.Text() == want {
		return ""
	}
	return fmt.Sprintf("the pod's annotation %s contradicts securityContext.appArmorProfile; remove the annotation", key)
}

// HostProcess returns an error message if a new container would mix Windows host process containers with other containers in one
// pod, or "".
func HostProcess(pod, container *jsontree.Node) string {
	all := pod.At("spec", "securityContext", "windowsOptions", "hostProcess")
	of := func(c *jsontree.Node) *jsontree.Node { return c.At("securityContext", "windowsOptions", "hostProcess") }
	own := of(container)
	theirs := false
	if items := pod.At("spec", "containers").Items(); len(items) > 0 {
		theirs = cmp.Or(of(&items[0]), all).Kind() == jsontree.True
	}
	if (cmp.Or(own, all).Kind() == jsontree.True) != theirs || own != nil && all != nil && own.Kind() != all.Kind() {
		return fmt.Sprintf("either all containers of a pod are host process containers or none is, but %s differs from the pod's containers", container.Get("name").Text())
	}
	return ""
}
