// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/manifests"
)

// base is every document of the kustomize base.
type base struct {
	namespace      corev1.Namespace
	serviceAccount corev1.ServiceAccount
	role           rbacv1.ClusterRole
	binding        rbacv1.ClusterRoleBinding
	priority       schedulingv1.PriorityClass
	deployment     appsv1.Deployment
	service        corev1.Service
	budget         policyv1.PodDisruptionBudget
	mutating       admissionregistrationv1.MutatingWebhookConfiguration
	validating     admissionregistrationv1.ValidatingWebhookConfiguration
	advising       admissionregistrationv1.ValidatingWebhookConfiguration // of the folder advise
}

func (b *base) targets() map[string]metav1.Object {
	return map[string]metav1.Object{
		"v1/Namespace":      &b.namespace,
		"v1/ServiceAccount": &b.serviceAccount,
		"rbac.authorization.k8s.io/v1/ClusterRole":                       &b.role,
		"rbac.authorization.k8s.io/v1/ClusterRoleBinding":                &b.binding,
		"scheduling.k8s.io/v1/PriorityClass":                             &b.priority,
		"apps/v1/Deployment":                                             &b.deployment,
		"v1/Service":                                                     &b.service,
		"policy/v1/PodDisruptionBudget":                                  &b.budget,
		"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration":   &b.mutating,
		"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration": &b.validating,
	}
}

// load decodes every document strictly, and wants each kind exactly once.
func load(t testing.TB) *base {
	t.Helper()
	if mutated, ok := t.(*recorder); ok {
		return mutated.base
	}
	b := &base{}
	left := b.targets()
	for _, name := range files(t) {
		for doc := range strings.SplitSeq(read(t, name), "\n---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			id := kind.APIVersion + "/" + kind.Kind
			target, ok := left[id]
			if !ok {
				t.Fatalf("%s: %s is not expected, or not twice", name, id)
			}
			delete(left, id)
			if err := yaml.UnmarshalStrict([]byte(doc), target); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if len(left) > 0 {
		t.Fatalf("missing: %v", slices.Sorted(maps.Keys(left)))
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "../advise/validatingwebhookconfiguration.yaml")), &b.advising); err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t testing.TB, name string) string {
	t.Helper()
	data, err := fs.ReadFile(manifests.Base, path.Join("base", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// files are the files of the base but its kustomization, in their order.
func files(t testing.TB) []string {
	t.Helper()
	entries, err := fs.ReadDir(manifests.Base, "base")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != "kustomization.yaml" {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestKustomization checks that the kustomization lists each manifest, and the image.
func TestKustomization(t *testing.T) {
	var k struct {
		metav1.TypeMeta `json:",inline"`
		Resources       []string            `json:"resources"`
		Images          []map[string]string `json:"images"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "kustomization.yaml")), &k); err != nil {
		t.Fatal(err)
	}
	others := []string{"../crds", "../../templates/library", "../advise", "../controller"}
	var listed []string
	for _, r := range k.Resources {
		if !slices.Contains(others, r) {
			listed = append(listed, r)
		}
	}
	if want := files(t); !slices.Equal(listed, want) {
		t.Errorf("resources are %q, want every file in its order: %q", listed, want)
	}
	if len(k.Resources) != len(listed)+len(others) {
		t.Errorf("resources are %q, want also %q", k.Resources, others)
	}
	if len(k.Images) != 1 || k.Images[0]["name"] != manifests.Image || k.Images[0]["newTag"] == "" {
		t.Errorf("images are %v, want %s with a tag", k.Images, manifests.Image)
	}
}

// TestTemplatesConfigMap checks that the library's kustomization makes the ConfigMap that the
// Deployment mounts.
func TestTemplatesConfigMap(t *testing.T) {
	data, err := os.ReadFile("../templates/library/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		metav1.TypeMeta    `json:",inline"`
		ConfigMapGenerator []struct {
			Name      string   `json:"name"`
			Namespace string   `json:"namespace"`
			Files     []string `json:"files"`
		} `json:"configMapGenerator"`
		GeneratorOptions struct {
			DisableNameSuffixHash bool              `json:"disableNameSuffixHash"`
			Labels                map[string]string `json:"labels"`
		} `json:"generatorOptions"`
	}
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		t.Fatal(err)
	}
	if len(k.ConfigMapGenerator) != 1 {
		t.Fatalf("%d generators, want one", len(k.ConfigMapGenerator))
	}
	g := k.ConfigMapGenerator[0]
	if g.Name != manifests.TemplatesConfigMap || g.Namespace != manifests.Namespace || !k.GeneratorOptions.DisableNameSuffixHash {
		t.Errorf("generates %s/%s, hash off: %t", g.Namespace, g.Name, k.GeneratorOptions.DisableNameSuffixHash)
	}
	templates, err := fs.Glob(os.DirFS("../templates/library"), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	templates = slices.DeleteFunc(templates, func(name string) bool { return name == "kustomization.yaml" })
	if len(templates) == 0 || !slices.Equal(g.Files, templates) {
		t.Errorf("files are %q, want every template: %q", g.Files, templates)
	}
}

// TestNames checks the names of all objects.
func TestNames(t *testing.T) { checkNames(t) }

func checkNames(t testing.TB) {
	t.Helper()
	b := load(t)
	for id, object := range b.targets() {
		want := manifests.Name
		if object == metav1.Object(&b.namespace) {
			want = manifests.Namespace
		}
		if object.GetName() != want {
			t.Errorf("%s is named %q, want %q", id, object.GetName(), want)
		}
		if object.GetLabels()["app.kubernetes.io/name"] != manifests.Name {
			t.Errorf("%s lacks the label app.kubernetes.io/name", id)
		}
	}
	for _, object := range []metav1.Object{&b.serviceAccount, &b.deployment, &b.service, &b.budget} {
		if object.GetNamespace() != manifests.Namespace {
			t.Errorf("%T is in namespace %q", object, object.GetNamespace())
		}
	}
	if got := b.namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("the namespace enforces %q", got)
	}
}

// TestRBAC checks that the roles have exactly the rights that Pillion needs.
func TestRBAC(t *testing.T) { checkRBAC(t) }

func checkRBAC(t testing.TB) {
	t.Helper()
	b := load(t)
	read := []string{"get", "list", "watch"}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "serviceaccounts"}, Verbs: read},
		{APIGroups: []string{"pillion.dev"}, Resources: []string{"clustersidecartemplates", "sidecartemplates"}, Verbs: read},
		{
			APIGroups:     []string{admissionregistrationv1.GroupName},
			Resources:     []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
			ResourceNames: []string{b.mutating.Name}, Verbs: read,
		},
		{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{"clustersidecartemplates.pillion.dev", "sidecartemplates.pillion.dev"}, Verbs: []string{"get"},
		},
	}
	if !equality.Semantic.DeepEqual(b.role.Rules, want) || b.validating.Name != b.mutating.Name {
		t.Errorf("rules are %v, want only %v", b.role.Rules, want)
	}
	if r := b.binding.RoleRef; r.Kind != "ClusterRole" || r.Name != b.role.Name || r.APIGroup != rbacv1.GroupName {
		t.Errorf("roleRef is %v", r)
	}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: b.serviceAccount.Name, Namespace: b.serviceAccount.Namespace}
	if len(b.binding.Subjects) != 1 || b.binding.Subjects[0] != subject {
		t.Errorf("subjects are %v, want %v", b.binding.Subjects, subject)
	}
}

// TestServiceReachesDeployment checks that the Service selects the Deployment's pods and has their port.
func TestServiceReachesDeployment(t *testing.T) { checkServiceReachesDeployment(t) }

func checkServiceReachesDeployment(t testing.TB) {
	t.Helper()
	b := load(t)
	pod := b.deployment.Spec.Template
	container := pod.Spec.Containers[0]
	if pod.Spec.ServiceAccountName != b.serviceAccount.Name {
		t.Errorf("serviceAccountName is %q", pod.Spec.ServiceAccountName)
	}
	if pod.Spec.PriorityClassName != b.priority.Name {
		t.Errorf("priorityClassName is %q", pod.Spec.PriorityClassName)
	}
	selects := func(s *metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		return err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.Labels))
	}
	if !selects(b.deployment.Spec.Selector) || !selects(b.budget.Spec.Selector) || !selects(&metav1.LabelSelector{MatchLabels: b.service.Spec.Selector}) {
		t.Error("a selector of Deployment, PodDisruptionBudget or Service misses the pods")
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		if !selects(spread.LabelSelector) {
			t.Errorf("the spread over %s misses the pods", spread.TopologyKey)
		}
	}
	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	want := map[string]int32{manifests.WebhookPortName: manifests.WebhookPort, manifests.AdminPortName: manifests.AdminPort}
	if !maps.Equal(ports, want) {
		t.Errorf("container ports are %v, want %v", ports, want)
	}
	if p := b.service.Spec.Ports; len(p) != 1 || p[0].Name != manifests.WebhookPortName || p[0].Port != manifests.ServicePort || p[0].TargetPort != intstr.FromString(manifests.WebhookPortName) {
		t.Errorf("service ports are %v", p)
	}
	if container.Image != manifests.Image {
		t.Errorf("image is %q, and kustomize would not give it its tag", container.Image)
	}
}
