// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// breach is a limit that a pod violates.
type breach struct {
	by   string // the LimitRange or quota
	text string
	now  bool // it depends on what the quota has left at the moment
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

// containersOf returns all containers in the order in which the API server checks them: init
// containers last.
func containersOf(pod *corev1.Pod) []*corev1.Container {
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// totalResources returns the resources of a pod (KEP-753). If the pod has resources of its own, these
// count instead (KEP-2837). Containers and native sidecars run at the same time. Before them,
// each init container runs beside the sidecars above it. The maximum counts.
func totalResources(pod *corev1.Pod, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	whole, starting, sidecars := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pod.Spec.Containers {
		addResources(whole, of(&pod.Spec.Containers[i].Resources))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		own := of(&c.Resources)
		now := make(corev1.ResourceList, len(own)) // the other resources are not more than before
		for name := range own {
			now[name] = sidecars[name]
		}
		addResources(now, own)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addResources(whole, own)
			maps.Copy(sidecars, now)
		}
		raiseResources(starting, now)
	}
	raiseResources(whole, starting)
	if pod.Spec.Resources != nil {
		for name, q := range of(pod.Spec.Resources) {
			if isPodLevel(name) {
				whole[name] = q
			}
		}
	}
	return whole
}

// withDefaults returns a copy of a pod with the requests that the API server sets to limits
// (SetDefaults_Pod).
func withDefaults(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, c := range containersOf(pod) {
		fillMissing(&c.Resources.Requests, c.Resources.Limits)
	}
	return pod
}

// fillMissing adds missing resources to a list.
func fillMissing(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, q := range from {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q
	}
}

func addResources(sum, list corev1.ResourceList) {
	for name, q := range list {
		s := sum[name].DeepCopy()
		s.Add(q)
		sum[name] = s
	}
}

func raiseResources(most, list corev1.ResourceList) {
	for name, q := range list {
		if m, ok := most[name]; !ok || q.Cmp(m) > 0 {
			most[name] = q
		}
	}
}

// isPodLevel reports whether a resource can be set for a whole pod.
func isPodLevel(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func requestsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }

func limitsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }
