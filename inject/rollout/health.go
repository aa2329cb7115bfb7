// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Health is how a pod is doing after a change.
type Health struct {
	Done   bool   // the change has taken effect, and the pod is as ready as before; or it has ended, is being deleted, or has no node yet
	Failed string // why it never will be
	Waits  string // for what, if neither
	Ended  string // the container that has ended and does not run again yet; events have the reason
}

// Check returns how a pod is doing. Own are the containers that a rollout changes. Before is the pod
// before the change, or nil if it was not changed now. Ready is whether the pod must be Ready to be done.
func Check(now, before *corev1.Pod, own []string, ready bool) Health {
	switch {
	case now.Status.Phase == corev1.PodSucceeded || now.DeletionTimestamp != nil:
		return Health{Done: true}
	case now.Spec.NodeName == "" && unscheduledCondition(now) != nil:
		return Health{Done: true} // it starts with the change
	case now.Status.Phase == corev1.PodFailed:
		return Health{Failed: "the pod has failed: " + orWord(now.Status.Message, now.Status.Reason)}
	case now.Status.ObservedGeneration > 0 && now.Status.ObservedGeneration < now.Generation:
		return Health{Waits: "the kubelet to notice the change"}
	}
	if h := checkResize(now); h.Failed != "" || h.Waits != "" {
		return h
	}
	var all Health
	for _, name := range own {
		h := checkContainer(now, before, name)
		if h.Failed != "" {
			return h
		}
		if all.Waits == "" {
			all = h
		}
	}
	isOver := func(name string) bool { return hasEnded(now, name) } // then the pod is not Ready again
	if all.Waits == "" && ready && !IsReady(now) && !slices.ContainsFunc(own, isOver) {
		all.Waits = "the pod to become Ready"
	}
	all.Done = all.Waits == ""
	return all
}

func orWord(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return "it gives no reason"
}

// IsReady reports whether a pod has the condition Ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// turnedReady returns when the condition Ready has last changed.
func turnedReady(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// ReadySince reports whether a pod has been Ready since a time, by the clock of its kubelet.
func ReadySince(pod *corev1.Pod, since time.Time) bool {
	return IsReady(pod) && !turnedReady(pod).After(since)
}

// Steady reports whether containers of a pod have run without a restart since a time. A container that crashes
// again and again runs for a moment each time.
func Steady(pod *corev1.Pod, own []string, since time.Time) bool {
	return !slices.ContainsFunc(own, func(name string) bool {
		_, stays := findContainer(pod, name)
		s := statusOf(pod, name)
		return stays && !hasEnded(pod, name) && (s == nil || s.State.Running == nil || s.State.Running.StartedAt.After(since))
	})
}

// probeSlack is how long the kubelet may take to report what a probe has found.
const probeSlack = 5 * time.Second

// awaitedStartupProbe returns a container whose startup probe may not have run yet, although it counts as started, and how long that
// may last. From 1.35 on, kubelets take from the container that ran before whether the new one has started, until its first probe
// (kubernetes/kubernetes issue 141155). So the pod stays Ready meanwhile. It is no proof that the new container works, unless the pod
// became Ready after that had started. It returns "" if there is none.
func awaitedStartupProbe(pod *corev1.Pod, own []string) (name string, atMost time.Duration) {
	const defaultPeriod = 10 // seconds
	for _, c := range own {
		spec, _ := findContainer(pod, c)
		status := statusOf(pod, c)
		if spec == nil || spec.StartupProbe == nil || status == nil || status.State.Running == nil || !status.State.Running.StartedAt.After(turnedReady(pod)) {
			continue
		}
		period := time.Duration(cmp.Or(spec.StartupProbe.PeriodSeconds, defaultPeriod)) * time.Second
		if period+probeSlack > atMost {
			name, atMost = c, period+probeSlack
		}
	}
	return name, atMost
}

// checkResize checks the conditions of a resize.
func checkResize(pod *corev1.Pod) Health {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch {
		case c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible:
			return Health{Failed: "the node cannot resize it: " + orWord(c.Message, c.Reason)}
		case c.Type == corev1.PodResizePending:
			return Health{Waits: "the node to have room for the resize: " + orWord(c.Message, c.Reason)}
		case c.Type == corev1.PodResizeInProgress && c.Reason == corev1.PodReasonError:
			return Health{Waits: "the kubelet to try the resize again: " + orWord(c.Message, c.Reason)}
		case c.Type == corev1.PodResizeInProgress:
			return Health{Waits: "the kubelet to resize it"}
		}
	}
	return Health{}
}

// isFatal reports whether a container that waits for a reason will not start without help.
func isFatal(reason string) bool {
	return slices.Contains([]string{
		"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
	}, reason)
}

// checkContainer checks one of the changed containers.
func checkContainer(now, before *corev1.Pod, name string) Health {
	spec, sidecar := findContainer(now, name)
	if spec == nil {
		return Health{}
	}
	status := statusOf(now, name)
	if !sidecar {
		return Health{} // an init container that has run does not run again
	}
	if status == nil {
		return Health{Waits: "the container " + name + " to start"}
	}
	if w := status.State.Waiting; w != nil {
		if isFatal(w.Reason) && !isStaleStatus(before, status, spec) && !isInOldBackOff(now, status) {
			return Health{Failed: fmt.Sprintf("the container %s does not start: %s", name, strings.TrimSuffix(w.Reason+": "+w.Message, ": "))}
		}
		return Health{Waits: "the container " + name + " to start"}
	}
	switch {
	case hasEnded(now, name) && !isBeingReplaced(before, status, spec):
		if code := status.State.Terminated.ExitCode; code != 0 && hasRestarted(before, status) {
			return Health{Failed: fmt.Sprintf("the container %s has failed with the exit code %d, and will not restart", name, code)}
		}
		return Health{}
	case status.State.Running == nil:
		return Health{Waits: "the container " + name + " to start again", Ended: name}
	case !runsImage(now, status, spec):
		return Health{Waits: "the container " + name + " to run the image " + spec.Image}
	case !status.Ready:
		return Health{Waits: "the container " + name + " to be ready"}
	case !hasResources(status, spec):
		return Health{Waits: "the container " + name + " to get its resources"}
	}
	return Health{}
}

// findContainer returns a container, and whether it runs as long as the pod.
func findContainer(pod *corev1.Pod, name string) (c *corev1.Container, stays bool) {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c, c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c, true
		}
	}
	return nil, false
}

// hasEnded reports whether a container has ended and does not run again, as in a Job.
func hasEnded(pod *corev1.Pod, name string) bool {
	spec, stays := findContainer(pod, name)
	status := statusOf(pod, name)
	if !stays || status == nil || status.State.Terminated == nil {
		return false
	}
	code, policy := status.State.Terminated.ExitCode, corev1.ContainerRestartPolicy(pod.Spec.RestartPolicy)
	if spec.RestartPolicy != nil {
		policy = *spec.RestartPolicy
	}
	for i := range spec.RestartPolicyRules {
		if codes := spec.RestartPolicyRules[i].ExitCodes; codes != nil && slices.Contains(codes.Values, code) == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return false
		}
	}
	return policy == corev1.ContainerRestartPolicyNever || policy == corev1.ContainerRestartPolicyOnFailure && code == 0
}

// isBeingReplaced reports whether a container has ended because the kubelet replaces it by one with another image. It does so
// whatever the restartPolicy is, but not if the container had ended before.
func isBeingReplaced(before *corev1.Pod, now *corev1.ContainerStatus, spec *corev1.Container) bool {
	if before == nil {
		return false
	}
	old, _ := findContainer(before, now.Name)
	was := statusOf(before, now.Name)
	return old != nil && was != nil && old.Image != spec.Image && was.State.Running != nil && was.ContainerID == now.ContainerID
}

// hasRestarted reports whether a container has run since the change.
func hasRestarted(before *corev1.Pod, now *corev1.ContainerStatus) bool {
	if before == nil {
		return false
	}
	was := statusOf(before, now.Name)
	return was != nil && was.ContainerID != now.ContainerID
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// isStaleStatus reports whether the status is still the one before the change.
func isStaleStatus(before *corev1.Pod, now *corev1.ContainerStatus, spec *corev1.Container) bool {
	if before == nil {
		return false
	}
	was := statusOf(before, now.Name)
	if was == nil || was.State.Waiting == nil {
		return false
	}
	old, _ := findContainer(before, now.Name)
	ofOldImage := old != nil && old.Image != spec.Image && strings.Contains(now.State.Waiting.Message, old.Image) && !strings.Contains(now.State.Waiting.Message, spec.Image)
	return ofOldImage || was.RestartCount == now.RestartCount && reflect.DeepEqual(was.State, now.State) && reflect.DeepEqual(was.LastTerminationState, now.LastTerminationState)
}

// isInOldBackOff reports whether a container that crashes again and again has not started since the last change of the pod.
// The kubelet starts it with the change when the back-off of before ends.
func isInOldBackOff(pod *corev1.Pod, status *corev1.ContainerStatus) bool {
	last, changed := status.LastTerminationState.Terminated, Changed(&pod.ObjectMeta)
	return status.State.Waiting.Reason == "CrashLoopBackOff" && last != nil && !changed.IsZero() && !last.StartedAt.After(changed)
}

// runsImage reports whether a container runs its image. Runtimes report another name for some images,
// so a container that has started after the last change also runs its image.
func runsImage(pod *corev1.Pod, status *corev1.ContainerStatus, spec *corev1.Container) bool {
	if normalizeImage(status.Image) == normalizeImage(spec.Image) {
		return true
	}
	if _, digest, ok := strings.Cut(spec.Image, "@"); ok && strings.HasSuffix(status.ImageID, digest) {
		return true
	}
	changed, running := Changed(&pod.ObjectMeta), status.State.Running
	return running != nil && (changed.IsZero() || running.StartedAt.After(changed.Add(-time.Second)))
}

// normalizeImage returns an image's name without what the defaults are.
func normalizeImage(image string) string {
	image = strings.TrimPrefix(strings.TrimPrefix(image, "docker.io/"), "library/")
	if !strings.Contains(image, "@") && strings.LastIndexByte(image, ':') <= strings.LastIndexByte(image, '/') {
		image += ":latest"
	}
	return image
}

// SameImage reports whether two names of an image differ only in what the defaults are.
func SameImage(a, b string) bool { return normalizeImage(a) == normalizeImage(b) }

// hasResources reports whether a running container has its CPU and memory.
func hasResources(status *corev1.ContainerStatus, spec *corev1.Container) bool {
	if status.Resources == nil {
		return true // an older kubelet does not report them
	}
	same := func(want, has corev1.ResourceList) bool {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			w, ok := want[name]
			if h, reported := has[name]; ok && reported && w.Cmp(h) != 0 {
				return false
			}
		}
		return true
	}
	return same(spec.Resources.Limits, status.Resources.Limits) && same(spec.Resources.Requests, status.Resources.Requests)
}

// Unscheduled returns why no node runs a pod yet, in the scheduler's words, or "".
func Unscheduled(pod *corev1.Pod) string {
	if c := unscheduledCondition(pod); c != nil {
		return c.Message
	}
	return ""
}

// unscheduledCondition returns the condition of a pod for which the scheduler has found no node yet, or nil.
func unscheduledCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}
