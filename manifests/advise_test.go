// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/manifests"
)

const adviseComponent = "components/advise"

// loadAdvise reads the component's entries by the eyes of [entry].
func loadAdvise(t *testing.T) (admissionregistrationv1.ValidatingWebhookConfiguration, []entry) {
	t.Helper()
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	decodeStrictly(t, filepath.Join(adviseComponent, "validatingwebhookconfiguration.yaml"), &c)
	_, all := entries(&base{validating: c})
	return c, all
}

func TestAdviseEntries(t *testing.T) {
	c, all := loadAdvise(t)
	if c.Name != manifests.AdviseName || c.Name != certs.Advising.Named(manifests.Name) || c.Labels["app.kubernetes.io/name"] != manifests.Name {
		t.Errorf("its name is %q, its labels are %v", c.Name, c.Labels)
	}
	if want := map[string]string{"cert-manager.io/inject-ca-from": manifests.Namespace + "/" + manifests.Name}; !equality.Semantic.DeepEqual(c.Annotations, want) {
		t.Errorf("its annotations are %v, want %v", c.Annotations, want)
	}
	if manifests.AdvisePath != webhook.PathAdvise {
		t.Errorf("the API server calls %s", manifests.AdvisePath)
	}
	path, port, namespaced := manifests.AdvisePath, int32(manifests.ServicePort), admissionregistrationv1.NamespacedScope
	rule := func(group string, resources ...string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources, Scope: &namespaced},
		}
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name)
		want := e // the selectors and the matchConditions have tests of their own
		want.ClientConfig = admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: manifests.Namespace, Name: manifests.Name, Path: &path, Port: &port,
		}}
		want.Rules = []admissionregistrationv1.RuleWithOperations{
			rule(appsv1.GroupName, "deployments", "statefulsets", "daemonsets", "replicasets"), rule(batchv1.GroupName, "jobs", "cronjobs"),
		}
		want.MatchPolicy = new(admissionregistrationv1.Equivalent)
		want.FailurePolicy = new(admissionregistrationv1.Ignore)
		want.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
		want.TimeoutSeconds = new(int32(2))
		want.AdmissionReviewVersions = []string{"v1", "v1beta1"}
		want.ObjectSelector = nil
		if !equality.Semantic.DeepEqual(e, want) {
			t.Errorf("%s is\n%+v, want\n%+v", e.Name, e, want)
		}
	}
	if want := []string{manifests.AdviseNamespaceEntry, manifests.AdvisePodEntry}; !slices.Equal(names, want) {
		t.Errorf("entries %q, want %q", names, want)
	}
}

// TestAdviseSelectors checks that the webhook is called for a workload if and only if it is called
// for the workload's pods. The namespaceSelectors are those of the base, and the matchCondition
// corresponds to its selector of pods.
func TestAdviseSelectors(t *testing.T) {
	mutating, _ := entries(load(t))
	_, all := loadAdvise(t)
	for _, name := range append(inject.SystemNamespaces(), "default", "team-a") {
		for _, ns := range optIns(labels.Set{corev1.LabelMetadataName: name}) {
			for _, pod := range optIns(labels.Set{"app": "web"}) {
				for _, workload := range []string{"template", "jobTemplate"} {
					checkAdviseSelectors(t, all, mutating, ns, pod, nil, workload)
				}
			}
			for _, own := range optIns(labels.Set{"app": "web"}) { // by mistake
				checkAdviseSelectors(t, all, mutating, ns, nil, own, "template")
			}
		}
	}
}

func checkAdviseSelectors(t *testing.T, all, mutating []entry, ns, pod, own labels.Set, workload string) { //nolint:revive // three sets of labels
	t.Helper()
	object := workloadOf(t, workload, pod, nil)
	object.(map[string]any)["metadata"].(map[string]any)["labels"] = decodeLabels(own)
	for i, e := range all {
		got := e.matches(t, ns, nil) && holds(t, e, object)
		if want := mutating[i].matches(t, ns, pod) || mutating[i].matches(t, ns, own); got != want {
			t.Errorf("%s matches %t: namespace %v, %s %v, itself %v", e.Name, got, ns, workload, pod, own)
		}
	}
}

func decodeLabels(set labels.Set) map[string]any {
	all := map[string]any{}
	for key, value := range set {
		all[key] = value
	}
	return all
}

// TestAdviseConditions checks that the webhook is not called for workloads that a controller
// creates. It is called for all others, except for those without pods that could opt in, and no
// condition fails.
func TestAdviseConditions(t *testing.T) {
	_, all := loadAdvise(t)
	byController := []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "controller": true}}
	byOthers := []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "controller": false}}
	optedIn := labels.Set{inject.LabelInject: inject.Enabled}
	for _, e := range all {
		for _, workload := range []string{"template", "jobTemplate"} {
			if holds(t, e, workloadOf(t, workload, optedIn, byController)) {
				t.Errorf("%s is called for what a controller made", e.Name)
			}
			if !holds(t, e, workloadOf(t, workload, optedIn, byOthers)) {
				t.Errorf("%s is not called", e.Name)
			}
		}
		for _, odd := range []string{`{}`, `{"metadata":{}}`, `{"metadata":{"ownerReferences":[]},"spec":{}}`, `{"spec":{"template":{}}}`, `{"spec":{"jobTemplate":{"spec":{"template":{"metadata":{}}}}}}`} {
			if got := holds(t, e, decode(t, odd)); got != (e.Name == manifests.AdviseNamespaceEntry) {
				t.Errorf("%s on %s: %t", e.Name, odd, got)
			}
		}
	}
}

func workloadOf(t *testing.T, kind string, pod labels.Set, owners []any) any {
	t.Helper()
	spec := map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": pod}}}
	if kind == "jobTemplate" {
		spec = map[string]any{"jobTemplate": map[string]any{"spec": spec}}
	}
	metadata := map[string]any{"name": "web"}
	if owners != nil {
		metadata["ownerReferences"] = owners
	}
	text, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(text))
}

// holds reports whether all matchConditions of an entry do.
func holds(t *testing.T, e entry, object any) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.OptionalTypes())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range e.MatchConditions {
		ast, issues := env.Compile(c.Expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %s: %v", e.Name, c.Name, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := program.Eval(map[string]any{"object": object})
		if err != nil {
			t.Fatalf("%s: %s on %v: %v", e.Name, c.Name, object, err)
		}
		if out != types.True {
			return false
		}
	}
	return true
}

// wantFlag: a component adds these resources, and this flag to the Deployment.
func wantFlag(t *testing.T, component, flag string, resources ...string) {
	t.Helper()
	k := readKustomization(t, component)
	b := load(t)
	target := map[string]string{"kind": "Deployment", "name": b.deployment.Name, "namespace": b.deployment.Namespace}
	if k.Kind != "Component" || !slices.Equal(k.Resources, resources) ||
		len(k.Patches) != 1 || !equality.Semantic.DeepEqual(k.Patches[0].Target, target) {
		t.Fatalf("the kustomization is %+v", k)
	}
	text, err := os.ReadFile(filepath.Join(component, k.Patches[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	patchJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(patchJSON)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(b.deployment)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatal(err)
	}
	var got appsv1.Deployment
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	want := b.deployment
	want.Spec.Template.Spec.Containers[0].Args = append(want.Spec.Template.Spec.Containers[0].Args, flag)
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the Deployment is\n%+v, want\n%+v", got.Spec.Template.Spec, want.Spec.Template.Spec)
	}
}

// TestAdviseComponent checks that the component adds the flag, and the right to read what the flag
// needs.
func TestAdviseComponent(t *testing.T) {
	wantFlag(t, adviseComponent, "--advise", "rbac.yaml", "validatingwebhookconfiguration.yaml")
	b := load(t)
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	decodeStrictly(t, filepath.Join(adviseComponent, "rbac.yaml"), &role, &binding)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"limitranges", "resourcequotas"}, Verbs: []string{"list", "watch"}},
		{
			APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"validatingwebhookconfigurations"},
			ResourceNames: []string{manifests.AdviseName}, Verbs: []string{"get", "list", "watch"},
		},
	}
	if !equality.Semantic.DeepEqual(role.Rules, rules) {
		t.Errorf("rules are %v, want %v", role.Rules, rules)
	}
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: b.serviceAccount.Name, Namespace: b.serviceAccount.Namespace}}
	if binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}) || !slices.Equal(binding.Subjects, subject) {
		t.Errorf("%v is bound for %v", binding.RoleRef, binding.Subjects)
	}
	for _, o := range []metav1.Object{&role, &binding} {
		if o.GetName() != manifests.AdviseName || o.GetLabels()["app.kubernetes.io/name"] != manifests.Name {
			t.Errorf("%s has labels %v", o.GetName(), o.GetLabels())
		}
	}
}
