// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	installPage   = "manifests/docs/install.md"
	configurePage = "manifests/docs/configure.md"
)

// newOperator returns a user in a clone of the repository, with an image registry.
func (i *installed) newOperator(t *testing.T) *user {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := i.newUser(t)
	if err := u.clone(root); err != nil {
		t.Fatal(err)
	}
	return u
}

// doesAsWritten runs the commands of a page's block with that text. What is for the beginning of a command runs before it.
func (u *user) doesAsWritten(t *testing.T, path, text string, before map[string]func()) {
	t.Helper()
	u.follows(t, commandsIn(t, strings.TrimSuffix(pageBlock(t, path, text), "\n")), before)
}

// TestDocumentedOperations runs the documented commands that install, upgrade, add a component and
// remove everything, unchanged and in order. It runs the last ones twice.
func TestDocumentedOperations(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{"cert-manager", "self-signed"} {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			i := &installed{Cluster: newCluster(t), namespace: "shop"}
			if overlay == "cert-manager" {
				if _, err := i.StartCertManager(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			u := i.newOperator(t)
			u.installs(t, overlay)
			u.upgrades(t)
			u.addsAutoscaler(t)
			u.takesOut(t)
			u.takesOut(t)
			u.types(t, "kubectl apply --server-side -k my-pillion", 0)
			u.doesAsWritten(t, installPage, "-f manifests/deployer.yaml", nil)
		})
	}
}

func (u *user) installs(t *testing.T, overlay string) {
	t.Helper()
	if n := strings.Count(page(t, installPage), "```console"); n != 7 {
		t.Fatalf("the page has %d blocks of commands, and this test and TestHalfInstalled run 7", n)
	}
	u.doesAsWritten(t, installPage, "docker push", nil)
	u.doesAsWritten(t, installPage, "$ mkdir my-pillion\n", map[string]func(){
		"kubectl apply": func() { // the page says how to have the other overlay
			u.types(t, "sed -i s,overlays/cert-manager,overlays/"+overlay+", my-pillion/kustomization.yaml", 0)
		},
		"kubectl -n pillion-system rollout": func() {
			u.nodes(t, pillionNamespace)
			u.installed.run(t)
		},
		"pillion check": func() { // the page says that API servers need some seconds
			eventually(t, "all is well", func(ctx context.Context) error {
				shown, code, err := u.run(ctx, "pillion check")
				if err == nil && code != 0 {
					err = errors.New(shown)
				}
				return err
			})
		},
	})
	u.wantImage(t, "registry.example.com/pillion:v0.1.0")
	u.waitForInjection(t)
}

// upgrades to another image, and then adds a component.
func (u *user) upgrades(t *testing.T) {
	t.Helper()
	u.doesAsWritten(t, installPage, "$ sed -i s/v0.1.0/v0.2.0/ my-pillion", nil)
	u.wantImage(t, "registry.example.com/pillion:v0.2.0")
	u.waitForInjection(t)
	u.types(t, "echo 'components: [../manifests/components/fail-closed]' >> my-pillion/kustomization.yaml", 0)
	u.types(t, "kubectl apply --server-side -k my-pillion", 0)
	mutating, err := u.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range mutating.Webhooks {
		if *w.FailurePolicy != admissionregistrationv1.Fail || len(w.ClientConfig.CABundle) == 0 {
			t.Errorf("%s: failurePolicy %s, %d bytes of caBundle", w.Name, *w.FailurePolicy, len(w.ClientConfig.CABundle))
		}
	}
	u.waitForInjection(t)
}

// addsAutoscaler adds a component that removes a field, as the page about load shows.
func (u *user) addsAutoscaler(t *testing.T) {
	t.Helper()
	u.doesAsWritten(t, "manifests/docs/load.md", "--field-manager=handover", nil)
	u.types(t, "sed -i 's,components/fail-closed,&\\, ../manifests/components/hpa,' my-pillion/kustomization.yaml", 0)
	u.types(t, "kubectl apply --server-side -k my-pillion", 0)
	d, err := u.Client.AppsV1().Deployments(pillionNamespace).Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 2 {
		t.Errorf("after the hand-over: %v replicas, %v", d.Spec.Replicas, err)
	}
	if _, err := u.Client.AutoscalingV2().HorizontalPodAutoscalers(pillionNamespace).Get(testContext(t), pillionConfiguration, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	u.waitForInjection(t)
}

func (u *user) wantImage(t *testing.T, want string) {
	t.Helper()
	d, err := u.Client.AppsV1().Deployments(pillionNamespace).Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Spec.Template.Spec.Containers[0].Image; got != want {
		t.Errorf("the image is %s, want %s", got, want)
	}
}

// takesOut runs the page's commands to remove Pillion. Then nothing of it is left, and pods that opted in do not wait.
func (u *user) takesOut(t *testing.T) {
	t.Helper()
	u.doesAsWritten(t, installPage, "$ kubectl delete --ignore-not-found -k my-pillion", nil)
	if _, err := u.Client.CoreV1().Namespaces().Get(testContext(t), pillionNamespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is there still: %v", err)
	}
	prints := func(command string) string {
		t.Helper()
		shown, code, err := u.run(testContext(t), command)
		if err != nil || code != 0 {
			t.Fatalf("%s: exit code %d, %v: %s", command, code, err, shown)
		}
		return shown
	}
	kinds := strings.Fields(prints("kubectl api-resources --verbs=list -o name"))
	if !slices.Contains(kinds, "priorityclasses.scheduling.k8s.io") {
		t.Fatalf("the kinds are %q", kinds)
	}
	left := prints("kubectl get -A -l app.kubernetes.io/name=pillion -o name --ignore-not-found " + strings.Join(kinds, ",") + " 2>/dev/null")
	if left != "" {
		t.Errorf("left is %s", left)
	}
	eventually(t, "pods that opted in are left alone", func(ctx context.Context) error {
		pod := shopPod()
		pod.GenerateName = "plain-"
		pod, err := u.Client.CoreV1().Pods(u.namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil && isInjected(pod) {
			err = fmt.Errorf("%s is injected", pod.Name)
		}
		return err
	})
}
