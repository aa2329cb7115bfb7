// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEndedSince checks that a back-off counts only if the container has started since the change.
func TestEndedSince(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	started := func(at time.Time) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(at)}},
		}}}}
	}
	for _, c := range []struct {
		what string
		pod  *corev1.Pod
		want bool
	}{
		{"before", started(since.Add(-time.Second)), false},
		{"in the same second", started(since), false},
		{"since", started(since.Add(time.Second)), true},
		{"never", &corev1.Pod{}, false},
	} {
		if got := endedSince(c.pod, "agent", since); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
