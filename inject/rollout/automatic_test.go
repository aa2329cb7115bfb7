// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// wrote is an entry of managed fields of a workload, some seconds after another time.
func wrote(manager, subresource, fields string, seconds int) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, seconds, 0, time.UTC))
	return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
}

// TestRestarted checks by whom a workload was restarted last.
func TestRestarted(t *testing.T) {
	t.Parallel()
	const template, replicas = `{"f:spec":{"f:template":{"f:metadata":{}}}}`, `{"f:spec":{"f:replicas":{}}}`
	user := wrote("kubectl", "", template, 1)
	for what, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   int // seconds; 0: not by a rollout
	}{
		"by nobody":                   {[]metav1.ManagedFieldsEntry{user}, 0},
		"by a rollout":                {[]metav1.ManagedFieldsEntry{user, wrote(rollout.Manager, "", template, 2)}, 2},
		"in another order":            {[]metav1.ManagedFieldsEntry{wrote(rollout.Manager, "", template, 2), user}, 2},
		"a user changed it later":     {[]metav1.ManagedFieldsEntry{wrote(rollout.Manager, "", template, 2), wrote("kubectl", "", template, 3)}, 0},
		"a user at the same time":     {[]metav1.ManagedFieldsEntry{wrote("kubectl", "", template, 2), wrote(rollout.Manager, "", template, 2)}, 0},
		"somebody scaled it later":    {[]metav1.ManagedFieldsEntry{user, wrote(rollout.Manager, "", template, 2), wrote("hpa", "scale", replicas, 3)}, 2},
		"a controller wrote a status": {[]metav1.ManagedFieldsEntry{user, wrote(rollout.Manager, "", template, 2), wrote("kube-controller-manager", "status", `{"f:status":{}}`, 3)}, 2},
	} {
		got := rollout.Restarted(&metav1.ObjectMeta{ManagedFields: test.fields})
		if got.IsZero() != (test.want == 0) || test.want != 0 && got.Second() != test.want {
			t.Errorf("%s: %s, want second %d", what, got, test.want)
		}
	}
}

// TestChooseInPlace checks that no pod is replaced if pods may only change in place.
func TestChooseInPlace(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		actions []rollout.Action
		way     rollout.Way
		todo    int
	}{
		"a new pod":          {[]rollout.Action{rollout.Replace}, rollout.Cannot, 0},
		"in place":           {[]rollout.Action{rollout.Patch}, rollout.ChangeInPlace, 1},
		"some of each":       {[]rollout.Action{rollout.Replace, rollout.Patch, rollout.Patch}, rollout.ChangeInPlace, 2},
		"one that cannot be": {[]rollout.Action{rollout.Leave}, rollout.Cannot, 0},
	} {
		w := &rollout.Workload{Kind: "Deployment", Name: "web"}
		for _, a := range test.actions {
			w.Behind = append(w.Behind, &rollout.Pod{Action: a, Why: "its args differ"})
		}
		w.Choose(rollout.Owner{Restarts: true, InPlace: true})
		if w.Way != test.way || len(w.Todo()) != test.todo {
			t.Errorf("%s: %s of %d pods (%s), want %s of %d", what, w.Way, len(w.Todo()), w.Why, test.way, test.todo)
		}
	}
}

// TestChooseJob checks that a running Job is never restarted, and that its pods change in place if they can.
func TestChooseJob(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		actions []rollout.Action
		way     rollout.Way
		todo    int
	}{
		"a new pod":    {[]rollout.Action{rollout.Replace}, rollout.Finish, 0},
		"in place":     {[]rollout.Action{rollout.Patch}, rollout.ChangeInPlace, 1},
		"some of each": {[]rollout.Action{rollout.Replace, rollout.Patch}, rollout.ChangeInPlace, 1},
	} {
		w := &rollout.Workload{Kind: "Job", Name: "migrate"}
		for _, a := range test.actions {
			w.Behind = append(w.Behind, &rollout.Pod{Action: a, Why: "its args differ"})
		}
		w.Choose(rollout.Owner{Job: true, Restarts: true, Recreates: true})
		if w.Way != test.way || len(w.Todo()) != test.todo || !strings.Contains(w.Why, "a running Job is never restarted") != (test.actions[0] == rollout.Patch) {
			t.Errorf("%s: %s of %d pods (%s), want %s of %d", what, w.Way, len(w.Todo()), w.Why, test.way, test.todo)
		}
	}
}

// TestSteady checks whether containers have run since a time.
func TestSteady(t *testing.T) {
	t.Parallel()
	now := time.Now()
	running := func(since time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-since))}}
	}
	for what, test := range map[string]struct {
		state corev1.ContainerState
		want  bool
	}{
		"for an hour": {running(time.Hour), true},
		"just now":    {running(time.Second), false},
		"it waits":    {corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent"}, {Name: "app"}}}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: test.state}, {Name: "app"}}
		if got := rollout.Steady(pod, []string{"agent"}, now.Add(-time.Minute)); got != test.want {
			t.Errorf("%s: %t, want %t", what, got, test.want)
		}
	}
}
