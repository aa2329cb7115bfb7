// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// TestChart follows the page about Helm: it installs, upgrades, rolls back and uninstalls the
// chart. Between two steps of the page, it also upgrades to a packaged chart with another CRD.
func TestChart(t *testing.T) {
	t.Parallel()
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	if _, err := i.StartCertManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	u := i.newHelmUser(t)
	u.follows(t, commandsOf(t, "manifests/docs/helm.md"), map[string]func(){
		"kubectl -n pillion-system rollout": func() {
			u.nodes(t, pillionNamespace)
			u.installed.run(t)
		},
		"pillion certs": func() { eventually(t, "all is well", u.certsAreWell) },
		"sed -i": func() {
			u.waitForInjection(t)
			u.wantFailurePolicy(t, admissionregistrationv1.Ignore)
			u.wantImage(t, "registry.example.com/pillion:v0.1.0")
		},
		"helm rollback": func() {
			u.wantImage(t, "registry.example.com/pillion:v0.2.0")
			u.waitForInjection(t)
			u.types(t, "helm install second manifests/chart --namespace second --create-namespace", 1) // the names are taken
			u.upgradesDefinition(t)
		},
		"helm uninstall": func() {
			u.wantFailurePolicy(t, admissionregistrationv1.Ignore)
			u.wantImage(t, "registry.example.com/pillion:v0.2.0")
			u.wantShortName(t, "sct")
			u.waitForInjection(t)
			u.handsOverReplicas(t)
		},
	})
	u.isUninstalled(t)
	u.types(t, "helm install pillion manifests/chart --namespace pillion-system --values my-values.yaml --set failurePolicy.mutating=Fail", 0)
	u.wantFailurePolicy(t, admissionregistrationv1.Fail)
}

// TestChartNamespace installs the chart in another namespace, as its own certificate authority.
func TestChartNamespace(t *testing.T) {
	t.Parallel()
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	i.Namespace = "sidecars"
	u := i.newHelmUser(t)
	u.types(t, "helm install pillion manifests/chart --namespace sidecars --create-namespace "+
		"--set certificates.source=self-signed --set failurePolicy.mutating=Fail", 0)
	i.run(t)
	i.waitForInjection(t)
	u.types(t, "pillion certs --system-namespace sidecars", 0)
	pod := shopPod()
	pod.Name, pod.Labels = "own", map[string]string{injectLabel: "enabled"}
	own, err := i.Client.CoreV1().Pods(i.Namespace).Create(testContext(t), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || isInjected(own) {
		t.Errorf("a pod in Pillion's own namespace: %v; %v", own.Annotations, err)
	}
	u.types(t, "helm uninstall pillion --namespace sidecars", 0)
	u.wantNoLeases(t)
}

// wantNoLeases waits until no Lease is in Pillion's namespace, also none that a replica created after it lost its own.
func (u *user) wantNoLeases(t *testing.T) {
	t.Helper()
	eventually(t, "the Leases are gone", func(ctx context.Context) error {
		leases, err := u.Client.CoordinationV1().Leases(u.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(leases.Items) > 0 {
			err = fmt.Errorf("there is %s, with the labels %v", leases.Items[0].Name, leases.Items[0].Labels)
		}
		return err
	})
}

// newHelmUser returns an operator who has helm.
func (i *installed) newHelmUser(t *testing.T) *user {
	t.Helper()
	helm, err := programs.Helm(t.Context(), programs.NewSteps(os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	u := i.newOperator(t)
	if err := os.Symlink(helm, filepath.Join(u.dir, "helm")); err != nil {
		t.Fatal(err)
	}
	return u
}

// certsAreWell returns an error if pillion certs reports a problem.
func (u *user) certsAreWell(ctx context.Context) error {
	shown, code, err := u.run(ctx, "pillion certs")
	if err == nil && code != 0 {
		err = errors.New(shown)
	}
	return err
}

// wantFailurePolicy checks the mutating webhooks. Their caBundle is not Helm's, so it stays.
func (u *user) wantFailurePolicy(t *testing.T, want admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	mutating, err := u.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := mutating.Labels["app.kubernetes.io/managed-by"]; got != "Helm" {
		t.Errorf("managed by %q", got)
	}
	for _, w := range mutating.Webhooks {
		if *w.FailurePolicy != want {
			t.Errorf("%s: failurePolicy %s, want %s", w.Name, *w.FailurePolicy, want)
		}
	}
	eventually(t, "the caBundles are there", u.bundlesThere)
}

// upgradesDefinition upgrades to a packaged chart with a changed CustomResourceDefinition, and to other values.
func (u *user) upgradesDefinition(t *testing.T) {
	t.Helper()
	u.wantShortName(t, "sct")
	u.types(t, "cp -rL manifests/chart changed && sed -i 's/- sct$/- changed/' changed/files/crds/sidecartemplates.yaml", 0)
	u.types(t, "helm package changed --version 0.2.0", 0)
	u.types(t, "helm upgrade pillion pillion-0.2.0.tgz --namespace pillion-system --reuse-values --set replicas=3,failurePolicy.mutating=Fail", 0)
	u.wantFailurePolicy(t, admissionregistrationv1.Fail)
	u.waitForInjection(t)
	u.wantShortName(t, "changed")
	u.wantReplicas(t, 3)
}

// handsOverReplicas enables the autoscaler, as the page about load shows.
func (u *user) handsOverReplicas(t *testing.T) {
	t.Helper()
	u.wantReplicas(t, 2)
	u.doesAsWritten(t, "manifests/docs/load.md", "--field-manager=handover", nil)
	u.types(t, "helm upgrade pillion manifests/chart --namespace pillion-system --reuse-values --set hpa.enabled=true", 0)
	u.wantReplicas(t, 2)
	if _, err := u.Client.AutoscalingV2().HorizontalPodAutoscalers(pillionNamespace).Get(testContext(t), pillionConfiguration, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func (u *user) wantReplicas(t *testing.T, want int32) {
	t.Helper()
	d, err := u.Client.AppsV1().Deployments(pillionNamespace).Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *d.Spec.Replicas != want {
		t.Errorf("%d replicas, want %d", *d.Spec.Replicas, want)
	}
}

func (u *user) wantShortName(t *testing.T, want string) {
	t.Helper()
	out, err := u.RunKubectl(testContext(t), nil, "get", "crd", "sidecartemplates.pillion.dev", "-o", "jsonpath={.spec.names.shortNames[0]}")
	if err != nil || string(out) != want {
		t.Errorf("the short name is %q, want %q; %v", out, want, err)
	}
}

// isUninstalled checks that nothing of the release exists, except the kinds of templates, and that
// pods are created without Pillion.
func (u *user) isUninstalled(t *testing.T) {
	t.Helper()
	kinds := "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings,priorityclasses,crds," +
		"deployments,services,serviceaccounts,configmaps,roles,rolebindings,poddisruptionbudgets,certificates,issuers"
	eventually(t, "the release is uninstalled", func(ctx context.Context) error {
		out, err := u.RunKubectl(ctx, nil, "get", kinds, "-n", pillionNamespace, "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name")
		if err != nil {
			return err
		}
		left := strings.Fields(string(out))
		slices.Sort(left)
		const crd = "customresourcedefinition.apiextensions.k8s.io/"
		if want := []string{crd + "clustersidecartemplates.pillion.dev", crd + "sidecartemplates.pillion.dev"}; !slices.Equal(left, want) {
			return fmt.Errorf("there is %q, want %q", left, want)
		}
		return nil
	})
	u.wantNoLeases(t)
	if _, err := u.Client.CoreV1().Secrets(pillionNamespace).Get(testContext(t), servingSecret, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, "a pod starts without Pillion", func(ctx context.Context) error {
		pod := shopPod()
		pod.GenerateName = "last-"
		created, err := u.Client.CoreV1().Pods(u.namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil && isInjected(created) {
			err = errors.New("it is injected")
		}
		return err
	})
}
