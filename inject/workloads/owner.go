// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"cmp"
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Owner is the workload that a pod belongs to.
type Owner struct {
	Kind string // "Pod" for a pod without a workload
	Name string
	// Selector is the label selector that finds the workload's pods, as a string. It is "" for a pod, which does not show it.
	Selector string
}

// OwnerOf returns the owner of the pods of an object: the object itself. For a pod, it returns a zero Owner, because a pod names its
// owner in its metadata. If the API server has not generated the object's name yet, the owner has the beginning of the name
// (generateName).
func OwnerOf(kind string, object *jsontree.Node) Owner {
	if kind == "Pod" {
		return Owner{}
	}
	metadata := object.Get("metadata")
	return Owner{kind, cmp.Or(metadata.Get("name").Text(), metadata.Get("generateName").Text()), selectorOf(kind, object)}
}

// selectorOf returns the selector of a workload as a string, or "" if it has none that Kubernetes accepts.
func selectorOf(kind string, object *jsontree.Node) string {
	n := object.At("spec", "selector")
	if n == nil || n.Kind() != jsontree.Object {
		return ""
	}
	structured := &metav1.LabelSelector{}
	into := any(structured)
	if kind == "ReplicationController" {
		into = &structured.MatchLabels
	}
	if json.Unmarshal(n.AppendTo(nil), into) != nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(structured)
	if err != nil {
		return ""
	}
	return selector.String()
}

// stableName returns the name of a pod. If the API server generates the name, stableName returns generateName, because some API
// servers generate the name only after the admission and all rounds must see the same.
func stableName(pod *jsontree.Node) string {
	metadata := pod.Get("metadata")
	return cmp.Or(metadata.Get("generateName").Text(), metadata.Get("name").Text())
}

// MakerOf returns the Deployment or the Argo Rollout that made a ReplicaSet. The name of such a ReplicaSet is the maker's name and a
// hash, which is also the value of a label of its pods. The function labels returns the value of a pod's label.
func MakerOf(replicaSet string, labels func(key string) string) (maker Owner, ok bool) {
	for _, of := range [...]struct{ kind, label string }{
		{"Deployment", appsv1.DefaultDeploymentUniqueLabelKey}, {"Rollout", "rollouts-pod-template-hash"},
	} {
		hash := labels(of.label)
		if name, found := strings.CutSuffix(replicaSet, "-"+hash); found && name != "" && hash != "" {
			return Owner{Kind: of.kind, Name: name}, true
		}
	}
	return Owner{}, false
}

// CronJobOf returns the name of the CronJob that made a Job, by the Job's name: the name of the CronJob and the time in minutes since
// 1970, which has eight digits until 2160. Nothing else in a pod shows the CronJob.
func CronJobOf(job string) (name string, ok bool) {
	const digits = len("29000000")
	at := len(job) - digits
	if at < 2 || job[at-1] != '-' || strings.Trim(job[at:], "0123456789") != "" {
		return "", false
	}
	return job[:at-1], true
}

// OfPod returns the workload that a pod belongs to. For a pod template, by is its owner (see [OwnerOf]). For a pod, by is zero, and the
// pod's metadata names the owner. If the owner is a ReplicaSet or a Job, OfPod derives the Deployment or the CronJob above it from the
// name, because a request makes no call to the API server. The selector is that of by.
func OfPod(pod *jsontree.Node, by Owner) Owner {
	if by.Kind == "" {
		by = Owner{Kind: "Pod", Name: stableName(pod)}
		owners := pod.At("metadata", "ownerReferences").Items()
		for i := range owners {
			if owners[i].Get("controller").Kind() == jsontree.True {
				by = Owner{Kind: owners[i].Get("kind").Text(), Name: owners[i].Get("name").Text()}
			}
		}
	}
	switch by.Kind {
	case "ReplicaSet":
		labels := pod.At("metadata", "labels")
		if maker, ok := MakerOf(by.Name, func(key string) string { return labels.Get(key).Text() }); ok {
			maker.Selector = by.Selector
			return maker
		}
	case "Job":
		if name, ok := CronJobOf(by.Name); ok {
			return Owner{Kind: "CronJob", Name: name, Selector: by.Selector}
		}
	}
	return by
}
