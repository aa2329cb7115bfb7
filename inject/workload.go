// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

// PodIn returns the path of a pod's metadata and spec in objects of a kind. The path is nil for a
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

// PodTemplateIn returns the path of a pod template's metadata and spec in an object, or nil if it has none. In kinds that [PodIn] does not
// know, for example Argo's Rollout, Kruise's CloneSet or Knative's Service, it is a list of containers at spec.template.spec that
// shows it.
func PodTemplateIn(apiVersion, kind string, object *tree.Node) []string {
	if at, ok := PodIn(apiVersion, kind); ok {
		return at
	}
	if object.At("spec", "template", "spec", "containers").Kind() == tree.Array {
		return []string{"spec", "template"}
	}
	return nil
}

// Claims returns the names of the volumes that a StatefulSet's claims become in each of its pods.
// They replace volumes with the same names. For other objects it returns none.
func Claims(object *tree.Node) (names []string) {
	claims := object.At("spec", "volumeClaimTemplates").Items()
	for i := range claims {
		names = append(names, claims[i].At("metadata", "name").Text())
	}
	return names
}
