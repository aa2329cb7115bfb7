// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// limitsStaticPods checks that users cannot avoid Pillion by the annotation of a mirror pod if the component is installed, and that
// kube-system still has its static pods.
func (i *installed) limitsStaticPods(t *testing.T) {
	create := func(ctx context.Context, ns string, edits ...func(*corev1.Pod)) error {
		_, err := i.Client.CoreV1().Pods(ns).Create(ctx, newPod("static", edits...), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := create(testContext(t), i.namespace, mirrorPod); err != nil {
		t.Fatalf("without the component: %v", err)
	}
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(root, "manifests", "components", "static-pods", "policy.yaml")
	if _, err := i.RunKubectl(testContext(t), nil, "apply", "--server-side", "--validate=strict", "-f", policy); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a mirror pod is denied", func(ctx context.Context) error {
		if err := create(ctx, i.namespace, mirrorPod); err == nil || !strings.Contains(err.Error(), "static pods may not be in this namespace") {
			return fmt.Errorf("the error is %v", err) //nolint:errorlint // it may be nil
		}
		return nil
	})
	if err := create(testContext(t), "kube-system", mirrorPod); err != nil {
		t.Errorf("in kube-system: %v", err)
	}
	if err := create(testContext(t), metav1.NamespaceDefault); err != nil { // without a call
		t.Errorf("a pod that is none: %v", err)
	}
}
