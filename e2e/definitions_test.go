// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDefinitionsDeleted checks that pods get their sidecars while somebody deletes the kinds of templates, and after that, and that a
// template that a user has deleted before is not used any more.
func TestDefinitionsDeleted(t *testing.T) {
	t.Parallel()
	i := install(t, newCluster(t), "self-signed")
	i.waitForInjection(t)
	c := &controlled{i.Cluster}
	const template = `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: %[1]s}
spec: {default: true, pod: {spec: {containers: [{name: %[1]s, image: "%[1]s:1"}]}}}
---
`
	c.kubectl(t, fmt.Sprintf(template, "first")+fmt.Sprintf(template, "second"), "apply", "-f", "-")
	c.kubectl(t, `
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: third}
spec: {default: true, pod: {spec: {containers: [{name: third, image: "third:1"}]}}}
`, "apply", "-n", i.namespace, "-f", "-")
	sidecars := func(ctx context.Context) (has map[string]bool, err error) {
		pod := newPod("web", restricted)
		created, err := i.Client.CoreV1().Pods(i.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return nil, err
		}
		has = map[string]bool{}
		for _, of := range [][]corev1.Container{created.Spec.Containers, created.Spec.InitContainers} {
			for k := range of {
				has[of[k].Name] = true
			}
		}
		return has, nil
	}
	const looks = 20 // so that each replica was asked
	has := func(first, second, third bool) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			for range looks {
				has, err := sidecars(ctx)
				if err != nil {
					return err
				}
				if has["first"] != first || has["second"] != second || has["third"] != third {
					return fmt.Errorf("a pod has %v", has)
				}
			}
			return nil
		}
	}
	eventually(t, "pods get all sidecars", has(true, true, true))
	c.kubectl(t, "", "delete", "clustersidecartemplate/second")
	eventually(t, "pods do not get the template that a user has deleted", has(true, false, true))

	deleted := make(chan error, 1)
	go func() {
		_, err := i.RunKubectl(testContext(t), nil, "delete", "crd", "clustersidecartemplates.pillion.dev", "sidecartemplates.pillion.dev")
		deleted <- err
	}()
	pods := 0
	for over := false; !over; pods++ {
		select {
		case err := <-deleted:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		default:
		}
		if err := has(true, false, true)(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "Pillion reports it", func(context.Context) error {
		for _, r := range i.replicas {
			if len(r.Logged("the kind of these templates is being deleted; they stay in use until this process ends")) == 0 {
				return errors.New("no line in the log")
			}
		}
		return nil
	})
	if err := has(true, false, true)(testContext(t)); err != nil {
		t.Error(err)
	}
	t.Logf("%d pods while the kinds were deleted", pods*looks)
	out, err := i.RunKubectl(testContext(t), nil, "apply", "--server-side", "-k", "../manifests/crds")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "a template that was applied again is used", func(ctx context.Context) error {
		_, err := i.RunKubectl(ctx, fmt.Appendf(nil, template, "second"), "apply", "-f", "-")
		return errors.Join(err, has(true, true, true)(ctx))
	})
}
