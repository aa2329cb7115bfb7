// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

const podSpecPath = "spec.pod.spec"

// placeOf returns the object that has a key which authors wrote at path, or "".
func placeOf(path, key string) string {
	var spec v1alpha1.Spec
	switch {
	case path == "" && hasKey(spec, key):
		return "spec"
	case path == "spec" && hasKey(spec.Match, key):
		return "spec.match"
	case (path == "spec" || path == "spec.pod") && (key == "labels" || key == "annotations"):
		return "spec.pod.metadata"
	case path == "spec.match" && hasKey(metav1.LabelSelector{}, key):
		return "spec.match.podSelector"
	case (path == "spec" || path == "spec.pod") && inPodSpec(key):
		return podSpecPath
	case path == "spec.match" && key == "labels":
		return "spec.match.podSelector.matchLabels"
	case path == "spec.match.podSelector" || path == "spec.match.namespaceSelector":
		return path + ".matchLabels"
	}
	return ""
}

// inPodSpec reports whether a key is a field of a PodSpec.
func inPodSpec(key string) bool { return hasKey(corev1.PodSpec{}, key) }

// hasKey reports whether a key is a field of the struct of.
func hasKey(of any, key string) bool {
	_, ok := jsontree.StructFieldOf(reflect.TypeOf(of), key)
	return ok
}

// otherKeys are other words for keys of spec.
var otherKeys = map[string]string{"vars": "variables", "template": "pod"}
