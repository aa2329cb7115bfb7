// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

// PodIn says where objects of a kind hold a pod's metadata and spec; nil for a
// pod itself.
func PodIn(apiVersion, kind string) (path []string, ok bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		group = ""
	}
	switch group + "/" + kind {
	case "/Pod":
		return nil, true
	case "/PodTemplate":
		return []string{"template"}, true
	case "/ReplicationController", "apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet", "apps/DaemonSet",
		"extensions/Deployment", "extensions/ReplicaSet", "extensions/DaemonSet", "batch/Job":
		return []string{"spec", "template"}, true
	case "batch/CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}, true
	}
	return nil, false
}

// Claims are the names of the volumes that the claims of a StatefulSet become in each of its pods, where they
// take the place of volumes of these names; none of other objects.
func Claims(object *tree.Node) (names []string) {
	claims := object.At("spec", "volumeClaimTemplates").Items()
	for i := range claims {
		names = append(names, claims[i].At("metadata", "name").Text())
	}
	return names
}
