// SPDX-License-Identifier: Apache-2.0

package inject

import "github.com/pillion-dev/pillion/templates/jsontree"

// kubeletPod is a pod that may be started, with what templates have added to it.
type kubeletPod struct {
	spec *jsontree.Node
	os   string // its operating system
	// findVolume returns the pod's volume of a mount, or nil.
	findVolume func(mount *jsontree.Node) *jsontree.Node
	// getsToken reports whether the ServiceAccount plugin has not run for the pod yet and will mount the API token in its containers.
	getsToken func() bool
}
