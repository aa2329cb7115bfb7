// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Excludes reports whether something in the pod forbids a field of the fragment that is valid by
// itself. The planner then omits this field. Pod is the object that would get the field, and whole
// is the pod. If the pod runs as root, its containers count as root even if their own fields
// differ, because another template may have set those.
func Excludes(pod, whole *tree.Node, f *Field, name string, value *tree.Node) bool {
	switch {
	case f.Parent == reflect.TypeFor[corev1.SecurityContext]() && name == "allowPrivilegeEscalation" && value.Kind() == tree.False:
		if pod.Get("privileged").Kind() == tree.True {
			return true
		}
		added := pod.At("capabilities", "add").Items()
		for i := range added {
			if added[i].IsText("SYS_ADMIN") || added[i].IsText("CAP_SYS_ADMIN") {
				return true
			}
		}
	case f.Parent == reflect.TypeFor[corev1.SecurityContext]() && name == "runAsNonRoot" && value.Kind() == tree.True:
		own, all := pod.Get("runAsUser"), whole.At("spec", "securityContext", "runAsUser")
		return own != nil && IsZero(own) || all != nil && IsZero(all)
	case f.Parent == reflect.TypeFor[corev1.PodSpec]() && name == "shareProcessNamespace" && value.Kind() == tree.True:
		return pod.Get("hostPID").Kind() == tree.True
	}
	return false
}
