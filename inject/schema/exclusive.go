// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Exclusion is a field of a pod because of which the API server would reject a value that is valid by itself.
type Exclusion struct {
	Field string         // path of the field in the object that would get the value, or in the pod
	Value *jsontree.Node // value of the field, or the item of its list because of which the value is rejected
	OfPod bool           // whether the field is one of the pod, which no template may set
}

// Excludes returns the field because of which the API server would reject a value of the fragment, or nil. Object is the object that
// would get the value as its member name, and whole is the pod. If the pod runs as root, its containers count as
// root even if their own fields differ, because another template may have set these.
func Excludes(object, whole *jsontree.Node, f *Field, name string, value *jsontree.Node) *Exclusion {
	switch {
	case f.Parent == reflect.TypeFor[corev1.SecurityContext]() && name == "allowPrivilegeEscalation" && value.Kind() == jsontree.False:
		if privileged := object.Get("privileged"); privileged.Kind() == jsontree.True {
			return &Exclusion{Field: "privileged", Value: privileged}
		}
		added := object.At("capabilities", "add").Items()
		for i := range added {
			if added[i].IsText("SYS_ADMIN") || added[i].IsText("CAP_SYS_ADMIN") {
				return &Exclusion{Field: "capabilities.add", Value: &added[i]}
			}
		}
	case f.Parent == reflect.TypeFor[corev1.SecurityContext]() && name == "runAsNonRoot" && value.Kind() == jsontree.True:
		if own := object.Get("runAsUser"); own != nil && IsZero(own) {
			return &Exclusion{Field: "runAsUser", Value: own}
		}
		if all := whole.At("spec", "securityContext", "runAsUser"); all != nil && IsZero(all) {
			return &Exclusion{Field: "spec.securityContext.runAsUser", Value: all, OfPod: true}
		}
	case f.Parent == reflect.TypeFor[corev1.PodSpec]() && name == "shareProcessNamespace" && value.Kind() == jsontree.True:
		if host := object.Get("hostPID"); host.Kind() == jsontree.True {
			return &Exclusion{Field: "spec.hostPID", Value: host, OfPod: true}
		}
	}
	return nil
}
