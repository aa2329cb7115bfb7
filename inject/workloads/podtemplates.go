// SPDX-License-Identifier: Apache-2.0

// Package workloads knows the objects that make pods: where their pod templates are, and which workload a pod belongs to.
package workloads

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// PodIn returns the path at which objects of a kind have a pod: an object with metadata and spec. The path is nil for a pod itself. If
// the kind is not known, ok is false.
func PodIn(apiVersion, kind string) (path []string, ok bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		group = "" // v1 is a version, of the core group
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

// PodTemplate is a pod template in an object.
type PodTemplate struct {
	At   []string       // its path in the object; indexes of lists are decimal numbers
	Node *jsontree.Node // nil if a kind that [PodIn] knows lacks it
}

// PodTemplates returns the pod templates of an object. For kinds that [PodIn] knows, that is the one at its path. Other kinds, for
// example Argo's Rollout, Knative's Service or JobSet, have one in each field that has the shape of a PodTemplateSpec.
func PodTemplates(apiVersion, kind string, object *jsontree.Node) []PodTemplate {
	if at, ok := PodIn(apiVersion, kind); ok {
		return []PodTemplate{{at, object.At(at...)}}
	}
	if kind == "" || hasPatterns(apiVersion, kind) {
		return nil
	}
	return podTemplatesBelow(object, nil, nil)
}

// Where returns the path in the form that users write, for example spec.template.
func (t PodTemplate) Where() string {
	var pointer jsontext.Pointer
	for _, name := range t.At {
		pointer = pointer.AppendToken(name)
	}
	return schema.Where(string(pointer))
}

// hasPatterns reports whether objects of a kind contain parts of pods that have the shape of a pod template but are none: templates
// of Pillion, and policies.
func hasPatterns(apiVersion, kind string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return strings.HasSuffix(group, templates.Domain) || strings.HasSuffix(group, "gatekeeper.sh") || strings.HasSuffix(kind, "Policy")
}

// podTemplatesBelow appends the pod templates in the fields of a value to all, but none inside of another one. At is the path of the
// value.
func podTemplatesBelow(n *jsontree.Node, at []string, all []PodTemplate) []PodTemplate {
	each := func(name string, field *jsontree.Node) {
		below := append(slices.Clip(at), name)
		if isPodTemplate(field) {
			all = append(all, PodTemplate{below, field})
			return
		}
		all = podTemplatesBelow(field, below, all)
	}
	members, items := n.Members(), n.Items()
	for i := range members {
		each(members[i].Name(), &members[i])
	}
	for i := range items {
		each(strconv.Itoa(i), &items[i])
	}
	return all
}

// isPodTemplate reports whether a value has the shape of a PodTemplateSpec: spec.containers has only containers.
func isPodTemplate(n *jsontree.Node) bool {
	containers := n.At("spec", "containers").Items()
	for i := range containers {
		name, image := containers[i].Get("name").Text(), containers[i].Get("image").Text()
		if name+image == "" || strings.ContainsAny(name+image, "*?") { // a pattern
			return false
		}
	}
	return len(containers) > 0
}

// Claims returns the names of the volumes that a StatefulSet's claims become in each of its pods.
// They replace volumes with the same names. For other objects it returns none.
func Claims(object *jsontree.Node) (names []string) {
	claims := object.At("spec", "volumeClaimTemplates").Items()
	for i := range claims {
		names = append(names, claims[i].At("metadata", "name").Text())
	}
	return names
}
