// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// beside returns where a field is that a Pod lacks, or "".
func beside(typeName, name string) string {
	switch {
	case typeName != reflect.TypeFor[corev1.Pod]().Name():
		return ""
	case name == "serviceAccount":
		return "serviceAccount, which has name, labels and annotations"
	case inPodSpec(name):
		return "pod.spec." + name
	case name == "labels" || name == "annotations" || name == "name":
		return "pod.metadata." + name
	}
	return ""
}

// inPodSpec reports whether a key is a field of a PodSpec.
func inPodSpec(key string) bool {
	_, ok := tree.StructFieldOf(reflect.TypeFor[corev1.PodSpec](), key)
	return ok
}
