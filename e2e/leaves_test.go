// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLeavesSelector shows what Kubernetes does with a workload whose selector excludes a label that a template adds: it releases
// each pod, and creates another one until a quota ends that. The commands name the label, not the quota.
func TestLeavesSelector(t *testing.T) {
	t.Parallel()
	const label, most = "written.pillion.dev/here", 8
	ns := optedInNamespace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(fmt.Sprint(most))}}}
	if _, err := env.Client.CoreV1().ResourceQuotas(ns).Create(testContext(t), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota is in use", func(ctx context.Context) error {
		now, err := env.Client.CoreV1().ResourceQuotas(ns).Get(ctx, quota.Name, metav1.GetOptions{})
		if err == nil && len(now.Status.Hard) == 0 {
			err = fmt.Errorf("its status is %+v", now.Status)
		}
		return err
	})
	pod := newPod("", requests("written"))
	selector := webSelector()
	selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist}}
	deployment := &appsv1.Deployment{ObjectMeta: workloadMeta(), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(1)), Selector: selector, Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
	}}
	if _, err := env.Client.AppsV1().Deployments(ns).Create(testContext(t), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota ends the pods", func(ctx context.Context) error {
		pods, err := env.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return err
		}
		released := 0
		for i := range pods.Items {
			if metav1.GetControllerOf(&pods.Items[i]) == nil {
				released++
			}
		}
		if len(pods.Items) < most || released < most-1 {
			return fmt.Errorf("%d pods for one replica, %d of them released", len(pods.Items), released)
		}
		return nil
	})
	failedCreate(t, ns)
	t.Cleanup(func() {
		_ = env.Client.AppsV1().Deployments(ns).Delete(context.Background(), deployment.Name, metav1.DeleteOptions{})
	})
	for _, args := range [][]string{{"status", ns}, {"explain", "deployment/" + deployment.Name, "-n", ns}} {
		args = append(args, "--kubeconfig", env.Kubeconfig, "--system-namespace", notHere, "--templates", filepath.Join("testdata", "templates"))
		out, _ := exec.CommandContext(testContext(t), env.binary, args...).CombinedOutput()
		text := strings.Join(strings.Fields(string(out)), " ")
		if !strings.Contains(text, label+"=yes takes the pods out of the selector") || strings.Contains(text, "exceeded quota") {
			t.Errorf("%s: %s", args[0], out)
		}
	}
}
