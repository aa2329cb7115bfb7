// SPDX-License-Identifier: Apache-2.0

package testwebhook

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Nothing changes nothing, so the webhook only records.
func Nothing(*corev1.Pod) []Operation { return nil }

// AddContainer adds a container unless the pod has one with this name.
func AddContainer(container corev1.Container) Mutate {
	return func(pod *corev1.Pod) []Operation {
		for _, c := range pod.Spec.Containers {
			if c.Name == container.Name {
				return nil
			}
		}
		return []Operation{{"add", "/spec/containers/-", container}}
	}
}

// AddLabel adds a label unless the pod has it.
func AddLabel(key, value string) Mutate {
	return func(pod *corev1.Pod) []Operation {
		if _, ok := pod.Labels[key]; ok {
			return nil
		}
		if pod.Labels == nil {
			return []Operation{{"add", "/metadata/labels", map[string]string{key: value}}}
		}
		return []Operation{{"add", "/metadata/labels/" + escape(key), value}}
	}
}

// SetPriorityClass sets a priority class, which Kubernetes resolves.
func SetPriorityClass(name string) Mutate {
	return func(pod *corev1.Pod) []Operation {
		ops := []Operation{{"add", "/spec/priorityClassName", name}}
		if pod.Spec.Priority != nil {
			ops = append(ops, Operation{Op: "remove", Path: "/spec/priority"})
		}
		return ops
	}
}

// Strip removes the restartPolicy and a volume mount from an init container, like webhooks
// that decode pods with types older than native sidecars.
func Strip(initContainer, mountPath string) Mutate {
	return func(pod *corev1.Pod) []Operation {
		var ops []Operation
		for i, c := range pod.Spec.InitContainers {
			if c.Name != initContainer {
				continue
			}
			if c.RestartPolicy != nil {
				ops = append(ops, Operation{Op: "remove", Path: fmt.Sprintf("/spec/initContainers/%d/restartPolicy", i)})
			}
			for j, m := range c.VolumeMounts {
				if m.MountPath == mountPath {
					ops = append(ops, Operation{Op: "remove", Path: fmt.Sprintf("/spec/initContainers/%d/volumeMounts/%d", i, j)})
				}
			}
		}
		return ops
	}
}

func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
