// SPDX-License-Identifier: Apache-2.0

package kubelet

import "github.com/pillion-dev/pillion/templates/jsontree"

// Pod is a pod that may be started, with what templates have added to it (see [jsontree.Node.IsNew]).
type Pod struct {
	Spec *jsontree.Node
	OS   string // its operating system
	Volumes
}

// Volumes knows the volumes of a pod.
type Volumes interface {
	// FindVolume returns the pod's volume of a mount, or nil.
	FindVolume(mount *jsontree.Node) *jsontree.Node
	// GetsToken reports whether the ServiceAccount plugin has not run for the pod yet and will mount the API token in its containers.
	GetsToken() bool
}
