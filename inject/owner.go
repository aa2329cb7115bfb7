// SPDX-License-Identifier: Apache-2.0

package inject

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

// OwnerOf returns the owner of the pods that an object of this kind makes. For a pod, it returns no owner: the
// pod names its own. If the API server makes the name of the object, the pods know only that name. It returns the beginning
// of the name if there is no name yet.
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

// stableName returns the name of a pod. If the API server makes the name, it returns the beginning, which all such pods
// share: some API servers make it only after the admission.
func stableName(pod *jsontree.Node) string {
	metadata := pod.Get("metadata")
	return cmp.Or(metadata.Get("generateName").Text(), metadata.Get("name").Text())
}

// MakerOf returns the Deployment of a ReplicaSet, or the Argo Rollout, given the labels of one of its pods: its
// controller appends the hash in one of them to its own name.
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

// CronJobOf returns the CronJob of a Job: its controller appends the time in minutes since 1970, which has eight
// digits until 2160. Nothing else in a pod shows it.
func CronJobOf(job string) (name string, ok bool) {
	const digits = len("29000000")
	at := len(job) - digits
	if at < 2 || job[at-1] != '-' || strings.Trim(job[at:], "0123456789") != "" {
		return "", false
	}
	return job[:at-1], true
}

// ownerOf returns the workload that a pod belongs to. By is the owner of a pod template, or empty for a pod. A
// pod of a ReplicaSet or a Job belongs to the Deployment or the CronJob above that, of which the names are
// known without a request to the API server. The selector is the one of the object that was given.
func ownerOf(pod *jsontree.Node, by Owner) Owner {
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
