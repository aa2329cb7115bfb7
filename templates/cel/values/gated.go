// SPDX-License-Identifier: Apache-2.0

package values

import "slices"

// An API server drops a gated field if its feature gate is off, also one that the user wrote. It
// does so between the two webhooks. Expressions therefore never see gated fields: their values
// would differ between the webhooks.

// Gated reports whether an API server drops a field if a feature gate is off. The field is named by
// its struct in k8s.io/api and by its JSON name.
func Gated(structName, field string) bool {
	return gated()[structName+"."+field] || structName == "PodSpec" && slices.Contains([]string{"evictionResponders", "hostnameOverride", "schedulingGroup"}, field)
}

// DroppedAnnotations returns the annotations that every API server drops between the two webhooks, also those that the user
// wrote (DropInitContainerAnnotations in k8s.io/kubernetes/pkg/api/pod). Expressions never see them, and no template may
// add one.
func DroppedAnnotations() [4]string {
	return [...]string{
		"pod.beta.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-containers",
		"pod.beta.kubernetes.io/init-container-statuses", "pod.alpha.kubernetes.io/init-container-statuses",
	}
}
