// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMisplaced checks that status and explain report Pillion's keys in the metadata of stored
// workloads, and nothing that controllers or kubectl wrote.
func TestMisplaced(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	ns := plainNamespace(t, withLabel(injectLabel, "enabled"))
	replicas := int32(0)
	create := func(d *appsv1.Deployment) {
		d.Spec.Replicas = &replicas
		if _, err := env.Client.AppsV1().Deployments(ns).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wrong := newDeployment("wrong", nil)
	wrong.Labels = map[string]string{injectLabel: "disabled"}
	wrong.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"pillion.dev/inject":"x"}`}
	right := newDeployment("right", map[string]string{"logger.pillion.dev/level": "info"})
	right.Spec.Template.Labels[injectLabel] = "enabled"
	right.Labels, right.Annotations = right.Spec.Template.Labels, right.Spec.Template.Annotations
	create(wrong)
	create(right)
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}}}
	_, err := env.Client.BatchV1().CronJobs(ns).Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
		Spec: batchv1.CronJobSpec{Schedule: "@yearly", JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"logger.pillion.dev/level": "debug"}}, Spec: batchv1.JobSpec{Template: pod},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"CronJob/nightly has logger.pillion.dev/level in spec.jobTemplate.metadata; Pillion reads spec.jobTemplate.spec.template.metadata",
		"Deployment/wrong has pillion.dev/inject in metadata; Pillion reads spec.template.metadata",
	}
	_, stdout, stderr := runStatus(t, env.Kubeconfig, env.templates, ns, "-o", "json")
	var report struct{ Misplaced []struct{ Why string } }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
	}
	var got []string
	for _, m := range report.Misplaced {
		got = append(got, m.Why)
	}
	if !slices.Equal(got, want) {
		t.Errorf("status reports %q, want %q", got, want)
	}
	args := []string{"--kubeconfig", env.Kubeconfig, "-n", ns}
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	var explained []string
	for _, r := range explain(t, nil, args...).Reports {
		explained = append(explained, r.Misplaced...)
	}
	slices.Sort(explained)
	if !slices.Equal(explained, want) {
		t.Errorf("explain reports %q, want %q", explained, want)
	}
	if reports := explain(t, nil, append([]string{"deployments", "wrong", "right"}, args...)...).Reports; len(reports) != 2 || len(reports[0].Misplaced) != 1 || len(reports[1].Misplaced) != 0 {
		t.Errorf("explain of two Deployments: %+v", reports)
	}
	_, stdout, _ = runStatus(t, env.Kubeconfig, env.templates, ns)
	if text := strings.Join(strings.Fields(stdout), " "); !strings.Contains(text, want[1]) {
		t.Error(stdout)
	}
}
