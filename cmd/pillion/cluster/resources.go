// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// apps, batch and core are API groups. Importing the packages of the first two from k8s.io/api
// would add 2% to the program's size.
var (
	apps  = schema.GroupVersion{Group: "apps", Version: "v1"}
	batch = schema.GroupVersion{Group: "batch", Version: "v1"}
	core  = corev1.SchemeGroupVersion
)

// Kind is a kind of objects that hold pods.
type Kind struct {
	schema.GroupVersionKind
	resource string
	short    string // kubectl's short name, or ""
	makes    string // what its controller creates: "pods", "owners" of pods, or ""
	owned    bool   // usually owned by another object
	restarts bool   // kubectl rollout restart works
	other    bool   // none of Kinds
}

var replicaSet = Kind{GroupVersionKind: apps.WithKind("ReplicaSet"), resource: "replicasets", short: "rs", makes: "pods", owned: true}

// IsOther reports whether the kind is none of [Kinds], for example an Argo Rollout or a TaskRun.
func (k Kind) IsOther() bool { return k.other }

// Kinds returns all kinds that hold pods. Those that users write come first.
func Kinds() []Kind {
	return []Kind{
		{GroupVersionKind: apps.WithKind("Deployment"), resource: "deployments", short: "deploy", makes: "owners", restarts: true},
		{GroupVersionKind: apps.WithKind("StatefulSet"), resource: "statefulsets", short: "sts", makes: "pods", restarts: true},
		{GroupVersionKind: apps.WithKind("DaemonSet"), resource: "daemonsets", short: "ds", makes: "pods", restarts: true},
		{GroupVersionKind: batch.WithKind("CronJob"), resource: "cronjobs", short: "cj", makes: "owners"},
		{GroupVersionKind: batch.WithKind("Job"), resource: "jobs", makes: "pods", owned: true},
		replicaSet,
		{GroupVersionKind: core.WithKind("ReplicationController"), resource: "replicationcontrollers", short: "rc"},
		{GroupVersionKind: core.WithKind("Pod"), resource: "pods", short: "po"},
		{GroupVersionKind: core.WithKind("PodTemplate"), resource: "podtemplates"},
	}
}

// Resource returns the API resource of the kind.
func (k Kind) Resource() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.resource)
}

// Name returns kubectl's name of the kind, for example deployment.
func (k Kind) Name() string { return strings.ToLower(k.Kind) }

// KindOf returns the kind that a user means by a name, a short name or a resource.
func KindOf(name string) (Kind, error) {
	bare, _, _ := strings.Cut(strings.ToLower(name), ".") // for example deployments.apps
	var known []string
	for _, k := range Kinds() {
		if bare != "" && slices.Contains([]string{k.Name(), k.resource, k.short}, bare) {
			return k, nil
		}
		known = append(known, k.Name())
	}
	slices.Sort(known)
	return Kind{}, fmt.Errorf("%q has no pods; use one of %s", name, strings.Join(known, ", "))
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
		if _, err := KindOf(kind); err == nil {
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

// resourceMapper returns what the API server says about its resources.
func (c *Client) resourceMapper() (meta.RESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), client, nil), nil
}

// isMade reports whether another listed object owns this one.
func isMade(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	_, ok := ownerResource(owner)
	return ok
}

// ownerResource returns the resource of an owner with a pod template.
func ownerResource(owner *metav1.OwnerReference) (schema.GroupVersionResource, bool) {
	kind, err := KindOf(owner.Kind)
	group, groupErr := schema.ParseGroupVersion(owner.APIVersion)
	return kind.Resource(), err == nil && groupErr == nil && kind.Group == group.Group
}

func hasEnded(object *unstructured.Unstructured) bool {
	phase, _, err := unstructured.NestedString(object.Object, "status", "phase")
	return err == nil && object.GetKind() == "Pod" && slices.Contains([]string{string(corev1.PodSucceeded), string(corev1.PodFailed)}, phase)
}
