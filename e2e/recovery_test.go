// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestHalfInstalled checks that the installation fails half-way without cert-manager, and that each
// solution on the page works.
func TestHalfInstalled(t *testing.T) {
	t.Parallel()
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	u := i.newOperator(t)
	u.halfInstalls(t)
	u.types(t, "kubectl delete --ignore-not-found -k my-pillion", 1) // no such kinds; and everything else goes:
	if left := u.kinds(t, "app.kubernetes.io/name=pillion"); left != nil && !slices.Equal(left, []string{"Namespace"}) {
		t.Errorf("left are %q", left)
	}
	u.types(t, "kubectl wait --for=delete namespace/pillion-system", 0)

	u.halfInstalls(t)
	u.doesAsWritten(t, installPage, "$ sed -i s,overlays/cert-manager,overlays/self-signed,", nil)
	if left := u.kinds(t, "app.kubernetes.io/name=pillion"); !slices.Contains(left, "ValidatingAdmissionPolicy") {
		t.Errorf("the overlay self-signed is not there: %q", left)
	}
	u.types(t, "sed -i s,overlays/self-signed,overlays/cert-manager, my-pillion/kustomization.yaml", 0)
	u.types(t, "kubectl apply --server-side -k my-pillion", 1)
	if _, err := i.StartCertManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.doesAsWritten(t, installPage, "$ kubectl apply --server-side -k my-pillion\n$ pillion certs", map[string]func(){
		"pillion certs": func() {
			u.nodes(t, pillionNamespace)
			u.installed.run(t)
			u.waitForInjection(t)
		},
	})
}

// halfInstalls does what the page has, up to the command that fails.
func (u *user) halfInstalls(t *testing.T) {
	t.Helper()
	before, _, _ := strings.Cut(pageBlock(t, installPage, "$ mkdir my-pillion\n"), "$ kubectl apply")
	_, before, _ = strings.Cut(before, "$ mkdir my-pillion\n")
	if err := os.MkdirAll(filepath.Join(u.dir, "my-pillion"), 0o755); err != nil {
		t.Fatal(err)
	}
	u.types(t, strings.TrimPrefix(before, "$ "), 0)
	u.types(t, "kubectl apply --server-side -k my-pillion", 1)
	u.types(t, "kubectl get mutatingwebhookconfiguration/pillion validatingwebhookconfiguration/pillion deployment/pillion -n pillion-system -o name", 0)
	// The page's own way to let pods start meanwhile.
	remove, _, _ := strings.Cut(pageBlock(t, installPage, "$ kubectl delete --ignore-not-found -k my-pillion"), "\n")
	u.types(t, strings.TrimPrefix(remove, "$ "), 0)
	_, err := u.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the webhooks are there still: %v", err)
	}
}

// kinds lists the kinds of the objects with that label.
func (u *user) kinds(t *testing.T, label string) []string {
	t.Helper()
	var kinds []string
	for _, object := range u.objects(t, label) {
		kinds = append(kinds, object.GetKind())
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// objects returns all objects with that label, without what an API server and its controllers keep in them.
func (u *user) objects(t *testing.T, label string) []unstructured.Unstructured {
	t.Helper()
	shown, code, err := u.run(testContext(t), "kubectl get -A -o json --ignore-not-found -l "+label+
		` "$(kubectl api-resources --verbs=list -o name | grep -v -e componentstatuses -e events -e endpoints -e pods -e replicasets -e metrics | paste -sd, -)" 2>/dev/null`)
	if err != nil || code != 0 {
		t.Fatalf("%v, exit code %d: %s", err, code, shown)
	}
	if strings.TrimSpace(shown) == "" {
		return nil
	}
	var list unstructured.UnstructuredList
	if err := json.Unmarshal([]byte(shown), &list); err != nil {
		t.Fatalf("%v: %s", err, shown)
	}
	for k := range list.Items {
		object := &list.Items[k]
		delete(object.Object, "status")
		metadata := map[string]any{"name": object.GetName(), "namespace": object.GetNamespace(), "labels": object.Object["metadata"].(map[string]any)["labels"]}
		object.Object["metadata"] = metadata
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetKind()+"/"+a.GetName(), b.GetKind()+"/"+b.GetName())
	})
	return list.Items
}

// monitoringKinds stand for the Prometheus operator's.
const monitoringKinds = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: KIND, plural: KINDs, singular: KIND}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestComponentsRemoved checks that after a component is removed as the page describes, the cluster
// is as it was without the component.
func TestComponentsRemoved(t *testing.T) {
	t.Parallel()
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	u := i.newOperator(t)
	for _, kind := range []string{"ServiceMonitor", "PodMonitor", "PrometheusRule"} {
		definition := strings.NewReplacer("kind: KIND,", "kind: "+kind+",", "KIND", strings.ToLower(kind)).Replace(monitoringKinds)
		if _, err := u.RunKubectl(testContext(t), []byte(definition), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	u.types(t, "kubectl wait --for=condition=Established crd --all", 0)
	u.types(t, "mkdir my-pillion && echo 'resources: [../manifests/overlays/self-signed]' > my-pillion/kustomization.yaml", 0)
	u.types(t, "kubectl apply --server-side -k my-pillion", 0)
	before := u.objects(t, "app.kubernetes.io/name=pillion")

	u.types(t, "echo components: >> my-pillion/kustomization.yaml", 0)
	added, atLeast := allComponents(t), len(before)+10
	if kubernetesMinor(t) < 36 { // it does not serve the two objects of this one
		added, atLeast = slices.DeleteFunc(added, func(name string) bool { return name == "keep-ca-bundle" }), atLeast-2
	}
	for _, component := range added {
		u.types(t, "echo '- ../manifests/components/"+component+"' >> my-pillion/kustomization.yaml", 0)
	}
	u.types(t, "kubectl apply --server-side -k my-pillion", 0)
	if with := u.objects(t, "app.kubernetes.io/name=pillion"); len(with) < atLeast {
		t.Fatalf("the components add %d objects", len(with)-len(before))
	}
	u.types(t, "kubectl -n pillion-system scale deployment/pillion --replicas=5", 0) // as an autoscaler does

	rows := removals(t)
	edit, apply, _ := strings.Cut(strings.TrimPrefix(pageBlock(t, configurePage, "--force-conflicts -k my-pillion"), "$ "), "\n$ ")
	for _, component := range added {
		if _, ok := rows[component]; !ok {
			t.Errorf("the page does not have what to delete for %s", component)
		}
		u.types(t, strings.ReplaceAll(edit, "components/hpa", "components/"+component), 0)
	}
	u.types(t, rows["hpa"], 0) // before the apply
	delete(rows, "hpa")
	if !slices.Contains(added, "keep-ca-bundle") {
		delete(rows, "keep-ca-bundle")
	}
	u.types(t, strings.TrimSpace(apply), 0)
	for _, command := range rows {
		if command != "" {
			u.types(t, command, 0)
		}
	}
	if diff := cmp.Diff(before, u.objects(t, "app.kubernetes.io/name=pillion")); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// removals are the commands of the page, by component.
func removals(t *testing.T) map[string]string {
	t.Helper()
	_, table, _ := strings.Cut(page(t, configurePage), "| component | command |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for name := range strings.SplitSeq(cells[1], ",") {
			command, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(cells[2]), "`"), "`")
			if !strings.HasPrefix(command, "kubectl ") {
				command = ""
			}
			rows[strings.Trim(name, " `")] = command
		}
	}
	return rows
}
