// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// updating has the fields of a Deployment, a StatefulSet or a DaemonSet that show whether it is
// replacing its pods.
type updating struct {
	Kind     string
	Metadata struct {
		Generation  int64
		Annotations map[string]string
	}
	Spec struct {
		Replicas *int
	}
	Status struct {
		ObservedGeneration int64
		Replicas           int
		UpdatedReplicas    int
		AvailableReplicas  int
		ReadyReplicas      int
		UpdateRevision     string

		DesiredNumberScheduled int
		UpdatedNumberScheduled int
		NumberAvailable        int
		Conditions             []struct{ Type, Status, Reason, Message string }
	}
}

// Progress is how far a workload is in replacing its pods.
type Progress struct {
	Health

	Updated int // pods of the newest pod template
}

// ProgressOf reads the progress from a Deployment, a StatefulSet or a DaemonSet.
func ProgressOf(workload []byte) (Progress, error) {
	u := &updating{}
	if err := json.Unmarshal(workload, u); err != nil {
		return Progress{}, err
	}
	s, wanted := &u.Status, 1
	if u.Spec.Replicas != nil {
		wanted = *u.Spec.Replicas
	}
	updated, available, old := s.UpdatedReplicas, s.AvailableReplicas, s.Replicas-s.UpdatedReplicas
	switch u.Kind {
	case "DaemonSet":
		wanted, updated, available, old = s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberAvailable, 0
	case "StatefulSet":
		available, old = s.ReadyReplicas, 0
	}
	p := Progress{Updated: updated + available}
	switch {
	case s.ObservedGeneration < u.Metadata.Generation:
		p.Waits = "its controller to notice the change"
	case deadlineExceeded(u):
		p.Failed = "it does not progress: its progressDeadlineSeconds have passed"
	case updated < wanted:
		p.Waits = fmt.Sprintf("%d of %d pods to be replaced", wanted-updated, wanted)
	case old > 0:
		p.Waits = explain.Plural(old, "old pod") + " to end"
	case available < wanted:
		p.Waits = fmt.Sprintf("%d of %d pods to be available", wanted-available, wanted)
	default:
		p.Done = true
	}
	return p, nil
}

func deadlineExceeded(u *updating) bool {
	for _, c := range u.Status.Conditions {
		if c.Type == "Progressing" && c.Status == string(corev1.ConditionFalse) && c.Reason == "ProgressDeadlineExceeded" {
			return true
		}
	}
	return false
}

// Newest returns a function that reports whether a pod is of the workload's newest pod template.
// Revision is the label pod-template-hash of the newest ReplicaSet, for a Deployment.
func Newest(workload []byte, revision string) func(*Pod) bool {
	u := &updating{}
	if json.Unmarshal(workload, u) != nil {
		return nil
	}
	label, value := "pod-template-hash", revision
	switch u.Kind {
	case "StatefulSet":
		label, value = "controller-revision-hash", u.Status.UpdateRevision
	case "DaemonSet":
		label, value = "pod-template-generation", u.Metadata.Annotations["deprecated.daemonset.template.generation"]
	}
	if value == "" {
		return nil
	}
	return func(p *Pod) bool { return p.Labels[label] == value }
}

// Stuck returns why a new pod does not start, or "".
func Stuck(pod *corev1.Pod) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && isFatal(w.Reason) {
			return fmt.Sprintf("the container %s does not start: %s: %s", s.Name, w.Reason, w.Message)
		}
	}
	return ""
}
