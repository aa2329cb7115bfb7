// SPDX-License-Identifier: Apache-2.0

package update

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTriedSince checks that a back-off counts only if the container has started since the change.
func TestTriedSince(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := func(started time.Time) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(started)}},
		}}}}
	}
	const restarting, pulling = "Back-off restarting failed container agent in pod web", `Back-off pulling image "agent:2"`
	for _, c := range []struct {
		message string
		started time.Time
		want    bool
	}{
		{restarting, since.Add(-time.Second), false},
		{restarting, since, true},
		{pulling, since.Add(-time.Second), true},
	} {
		if got := triedSince(pod(c.started), "agent", since, c.message); got != c.want {
			t.Errorf("%s, started %s: %v", c.message, c.started.Sub(since), got)
		}
	}
	if !triedSince(&corev1.Pod{}, "agent", since, restarting) {
		t.Error("an unknown container has not been tried")
	}
}
