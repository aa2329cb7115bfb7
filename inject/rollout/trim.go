// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim returns a pod with only the fields that a [Watch] and the requests about a pod need. A [Watch] holds all pods of its workload,
// and the other fields take as much memory as these, or more: for example variables, volumes and managed fields.
func Trim(pod *corev1.Pod) *corev1.Pod {
	small := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Labels: pod.Labels,
			ManagedFields: slices.Clone(pod.ManagedFields),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, RestartPolicy: pod.Spec.RestartPolicy,
			InitContainers: trimContainers(pod.Spec.InitContainers), Containers: trimContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{
			ObservedGeneration: pod.Status.ObservedGeneration, Phase: pod.Status.Phase, Message: pod.Status.Message, Reason: pod.Status.Reason,
			Conditions:            pod.Status.Conditions,
			InitContainerStatuses: trimStatuses(pod.Status.InitContainerStatuses), ContainerStatuses: trimStatuses(pod.Status.ContainerStatuses),
		},
	}
	if claim, ok := pod.Annotations[AnnotationUnproved]; ok {
		small.Annotations = map[string]string{AnnotationUnproved: claim}
	}
	small.ManagedFields = slices.DeleteFunc(small.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager != Manager })
	return small
}

func trimContainers(all []corev1.Container) []corev1.Container {
	small := make([]corev1.Container, len(all))
	for i := range all {
		c := &all[i]
		small[i] = corev1.Container{
			Name: c.Name, Image: c.Image, Resources: c.Resources, StartupProbe: c.StartupProbe,
			RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules,
		}
	}
	return small
}

func trimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	small := slices.Clone(all)
	for i := range small {
		s := &small[i]
		s.AllocatedResources, s.AllocatedResourcesStatus, s.VolumeMounts, s.User = nil, nil, nil, nil
	}
	return small
}
