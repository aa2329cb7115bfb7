// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodResources returns the resources that hold pods, with their names and short names.
func PodResources() map[schema.GroupVersionResource][]string {
	apps, batch, core := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "batch", Version: "v1"}, schema.GroupVersion{Version: "v1"}
	return map[schema.GroupVersionResource][]string{
		core.WithResource("pods"):                   {"pod", "po"},
		core.WithResource("replicationcontrollers"): {"replicationcontroller", "rc"},
		core.WithResource("podtemplates"):           {"podtemplate"},
		apps.WithResource("deployments"):            {"deployment", "deploy"},
		apps.WithResource("replicasets"):            {"replicaset", "rs"},
		apps.WithResource("statefulsets"):           {"statefulset", "sts"},
		apps.WithResource("daemonsets"):             {"daemonset", "ds"},
		batch.WithResource("jobs"):                  {"job"},
		batch.WithResource("cronjobs"):              {"cronjob", "cj"},
	}
}

// PodResource returns the resource that a user means by a kind.
func PodResource(kind string) (schema.GroupVersionResource, error) {
	bare, _, _ := strings.Cut(strings.ToLower(kind), ".") // for example deployments.apps
	var known []string
	for resource, names := range PodResources() {
		if bare == resource.Resource || slices.Contains(names, bare) {
			return resource, nil
		}
		known = append(known, names[0])
	}
	slices.Sort(known)
	return schema.GroupVersionResource{}, fmt.Errorf("%q has no pods; use one of %s", kind, strings.Join(known, ", "))
}

// makersAndPods returns the resources that create pods, and pods.
func makersAndPods() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		apps.WithResource("deployments"), apps.WithResource("statefulsets"),
		apps.WithResource("daemonsets"), batch.WithResource("cronjobs"),
		batch.WithResource("jobs"), apps.WithResource("replicasets"),
		corev1.SchemeGroupVersion.WithResource("replicationcontrollers"), corev1.SchemeGroupVersion.WithResource("pods"),
	}
}

// CheckNamespaces returns an error if a name cannot be a namespace's.
func CheckNamespaces(names ...string) error {
	for _, name := range names {
		wrong := validation.IsDNS1123Label(name)
		if name == "" || len(wrong) == 0 {
			continue
		}
		kind, of, _ := strings.Cut(name, "/")
		if slices.Contains([]string{"ns", "namespace", "namespaces"}, kind) {
			return fmt.Errorf("%q is not the name of a namespace; use %s", name, of)
		}
		if _, err := PodResource(kind); err == nil {
			return fmt.Errorf("%q is not the name of a namespace; for a workload or pod, use pillion explain %s", name, name)
		}
		return fmt.Errorf("%q is not the name of a namespace: %s", name, wrong[0])
	}
	return nil
}

// InNamespace returns the end of a sentence about a namespace, or "" for all namespaces.
func InNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in the namespace " + namespace
}

// isMade reports whether another listed object owns this one.
func isMade(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	_, ok := ownerResource(owner)
	return ok
}

// ownerResource returns the resource of an owner with a pod template.
func ownerResource(owner *metav1.OwnerReference) (schema.GroupVersionResource, bool) {
	resource, err := PodResource(owner.Kind)
	group, groupErr := schema.ParseGroupVersion(owner.APIVersion)
	return resource, err == nil && groupErr == nil && resource.Group == group.Group
}

func hasEnded(object *unstructured.Unstructured) bool {
	phase, _, err := unstructured.NestedString(object.Object, "status", "phase")
	return err == nil && object.GetKind() == "Pod" && slices.Contains([]string{string(corev1.PodSucceeded), string(corev1.PodFailed)}, phase)
}

// apps and batch are API groups. Importing their packages from k8s.io/api would add 2% to the
// program's size.
var (
	apps  = schema.GroupVersion{Group: "apps", Version: "v1"}
	batch = schema.GroupVersion{Group: "batch", Version: "v1"}
)

// makerKind is a kind whose controller creates pods.
type makerKind struct {
	schema.GroupVersionKind
	resource string
	owned    bool // usually owned by another object
}

func makerKinds() []makerKind {
	return []makerKind{
		{apps.WithKind("ReplicaSet"), "replicasets", true},
		{batch.WithKind("Job"), "jobs", true},
		{apps.WithKind("StatefulSet"), "statefulsets", false},
		{apps.WithKind("DaemonSet"), "daemonsets", false},
	}
}

// writtenKinds returns the kinds that users write and whose controllers create pods.
func writtenKinds() []makerKind {
	return []makerKind{
		{apps.WithKind("Deployment"), "deployments", false},
		{batch.WithKind("CronJob"), "cronjobs", false},
	}
}
