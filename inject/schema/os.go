// SPDX-License-Identifier: Apache-2.0

package schema

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// OS returns the pod's operating system. The default is linux.
func OS(pod *jsontree.Node) string {
	if os := pod.At("spec", "os", "name").Text(); os != "" {
		return os
	}
	for _, label := range OSLabels() {
		if os := pod.At("spec", "nodeSelector", label).Text(); os != "" {
			return os
		}
	}
	return string(corev1.Linux)
}

// OSLabels returns the labels of a node with its operating system, the preferred one first. The kubelet
// still sets the deprecated one.
func OSLabels() [2]string { return [2]string{corev1.LabelOSStable, "beta.kubernetes.io/os"} }
