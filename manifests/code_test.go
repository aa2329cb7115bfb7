// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestCodeAgrees checks that the constants of this package are those of the webhook, and that pillion explain knows the entries.
func TestCodeAgrees(t *testing.T) {
	if manifests.MutatePath != webhook.PathMutate || manifests.ValidatePath != webhook.PathValidate || manifests.ShadowPath != webhook.PathShadow ||
		manifests.LintPath != webhook.PathLint {
		t.Errorf("the API server calls %s, %s, %s and %s", manifests.MutatePath, manifests.ValidatePath, manifests.ShadowPath, manifests.LintPath)
	}
	b := load(t)
	for _, e := range append(explain.MutatingEntries(&b.mutating), explain.ValidatingEntries(&b.validating)...) {
		want := map[string]string{manifests.MutateNamespaceEntry: explain.Mutating, manifests.MutatePodEntry: explain.Mutating, manifests.ShadowEntry: explain.Shadow}[e.Name]
		if want == "" {
			want = explain.Validating
		}
		if e.Type != want {
			t.Errorf("explain takes %s for %s", e.Name, e.Type)
		}
	}
}

// TestEngineAgreesWithSelectors checks that if the API server would not call Pillion for a pod, the
// engine rejects it by the same rule, and vice versa. Therefore the command line shows what a
// cluster does.
func TestEngineAgreesWithSelectors(t *testing.T) {
	found, problems := templates.Parse("t.yaml", []byte(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: t}
spec: {default: true, pod: {metadata: {annotations: {example.com/t: t}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	injector := inject.New(templates.NewSet(found))
	mutating, _ := entries(load(t))
	for _, name := range append(inject.SystemNamespaces(), "team-a") {
		for _, ns := range optIns(labels.Set{corev1.LabelMetadataName: name}) {
			for _, pod := range optIns(labels.Set{"app": "web"}) {
				called := slices.ContainsFunc(mutating, func(e entry) bool { return e.matches(t, ns, pod) })
				code := decide(t, injector, request.Namespace{Name: name, Labels: ns, Known: true}, pod)
				if skipped := code == inject.CodeExcludedNamespace || code == inject.CodeNotOptedIn; skipped == called {
					t.Errorf("called: %t, decided: %s; namespace %v, pod %v", called, code, ns, pod)
				}
			}
		}
	}
}

func decide(t *testing.T, injector *inject.Injector, ns request.Namespace, pod labels.Set) inject.Code {
	t.Helper()
	object, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: pod}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := injector.Inject(inject.Request{Operation: "CREATE", Namespace: ns, Object: object})
	if err != nil {
		t.Fatal(err)
	}
	return result.Decisions[0].Code
}
