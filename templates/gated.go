// SPDX-License-Identifier: Apache-2.0

package templates

import "slices"

// An API server drops a gated field if its feature gate is off, also one that the user wrote. It
// does so between the two webhooks. Expressions therefore never see gated fields: their values
// would differ between the webhooks.

// Gated reports whether an API server drops a field if a feature gate is off. The field is named by
// its struct in k8s.io/api and by its JSON name.
func Gated(structName, field string) bool {
	return gated()[structName+"."+field] || structName == "PodSpec" && slices.Contains([]string{"evictionResponders", "hostnameOverride", "schedulingGroup"}, field)
}
