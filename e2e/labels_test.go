// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLabels checks that no template makes a controller create pods forever. If a controller
// selects pods by the absence of a label, it never finds a pod to which a template adds this label.
// Therefore lint and a running server reject such a template. With a label that has the template's
// own prefix, the ReplicaSet has the right number of pods.
func TestLabels(t *testing.T) {
	t.Parallel()
	pair := newReplicas(t, "label", "label")
	const why = "spec.pod.metadata.labels.team: a template may not set a label without a prefix"
	out, err := exec.CommandContext(testContext(t), env.binary, "lint", filepath.Join("testdata", "replicas", "looping"), "-o", "json").CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "may not set a label without a prefix") {
		t.Errorf("lint: %v: %s", err, out)
	}
	for i, pillion := range pair.pillions {
		pair.publish(t, i, "looping")
		eventually(t, "the set is rejected", func(context.Context) error {
			if said := fmt.Sprint(pillion.Logged("the new templates are invalid, the last valid ones stay in use")); !strings.Contains(said, why) {
				return fmt.Errorf("the log has %s", said)
			}
			return nil
		})
	}
	set, err := env.Client.AppsV1().ReplicaSets(pair.namespace).Create(testContext(t), &appsv1.ReplicaSet{
		ObjectMeta: workloadMeta(),
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Template: podTemplate(), Selector: &metav1.LabelSelector{
			MatchLabels: webSelector().MatchLabels, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantPods(t, set, 3)
	for _, replicas := range []string{"7", "2"} { // the controller looks again each time
		patch := `{"spec":{"replicas":` + replicas + `}}`
		set, err = env.Client.AppsV1().ReplicaSets(set.Namespace).Patch(testContext(t), set.Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantPods(t, set, int(*set.Spec.Replicas))
	}
}

// wantPods waits until the controller has seen the current ReplicaSet, and counts all existing pods.
func wantPods(t *testing.T, set *appsv1.ReplicaSet, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the ReplicaSet has %d pods", want), func(ctx context.Context) error {
		now, err := env.Client.AppsV1().ReplicaSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.Status.ObservedGeneration < set.Generation || int(now.Status.Replicas) != want {
			return fmt.Errorf("its status is %+v", now.Status)
		}
		pods, err := env.Client.CoreV1().Pods(set.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		living := 0
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.DeletionTimestamp != nil || metav1.GetControllerOf(pod) == nil && pod.Labels["app"] != "web" {
				continue
			}
			living++
			if pod.Labels["shield.pillion.dev/team"] != "injected" || pod.Labels["team"] != "" {
				t.Errorf("pod %s has the labels %v", pod.Name, pod.Labels)
			}
		}
		if living != want {
			t.Errorf("there are %d pods, not %d", living, want) // more would come
		}
		return nil
	})
}
