// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Owner is the workload that a pod belongs to.
type Owner struct {
	Kind string // "Pod" for a pod without a workload
	Name string
}

// OwnerOf returns the owner of the pods that an object of this kind makes. For a pod, it returns no owner: the
// pod names its own. If the API server makes the name of the object, the pods know only that name. It returns the beginning
// of the name if there is no name yet.
func OwnerOf(kind string, object *tree.Node) Owner {
	if kind == "Pod" {
		return Owner{}
	}
	metadata := object.Get("metadata")
	return Owner{kind, cmp.Or(metadata.Get("name").Text(), metadata.Get("generateName").Text())}
}

// stableName returns the name of a pod. If the API server makes the name, it returns the beginning, which all such pods
// share: some API servers make it only after the admission.
func stableName(pod *tree.Node) string {
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
			return Owner{of.kind, name}, true
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
// known without a request to the API server.
func ownerOf(pod *tree.Node, by Owner) Owner {
	if by.Kind == "" {
		by = Owner{"Pod", stableName(pod)}
		owners := pod.At("metadata", "ownerReferences").Items()
		for i := range owners {
			if owners[i].Get("controller").Kind() == tree.True {
				by = Owner{owners[i].Get("kind").Text(), owners[i].Get("name").Text()}
			}
		}
	}
	switch by.Kind {
	case "ReplicaSet":
		labels := pod.At("metadata", "labels")
		if maker, ok := MakerOf(by.Name, func(key string) string { return labels.Get(key).Text() }); ok {
			return maker
		}
	case "Job":
		if name, ok := CronJobOf(by.Name); ok {
			return Owner{"CronJob", name}
		}
	}
	return by
}
