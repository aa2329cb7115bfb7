// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

const selfSigned = "overlays/self-signed"

// kustomization is as much of one as overlays and components here use.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []string `json:"resources"`
	Patches         []struct {
		Target map[string]string `json:"target"`
		Path   string            `json:"path"`
	} `json:"patches"`
}

func readKustomization(t *testing.T, dir string) kustomization {
	t.Helper()
	var k kustomization
	decodeStrictly(t, filepath.Join(dir, "kustomization.yaml"), &k)
	return k
}

// decodeStrictly decodes the documents of a file, which are as many as the targets.
func decodeStrictly(t *testing.T, path string, targets ...any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	if len(documents) != len(targets) {
		t.Fatalf("%s has %d documents, want %d", path, len(documents), len(targets))
	}
	for i, document := range documents {
		if err := yaml.UnmarshalStrict([]byte(document), targets[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// TestSelfSignedDeployment checks that the patch changes the base's Deployment only so that the
// certificate comes from the Secret by its name.
func TestSelfSignedDeployment(t *testing.T) {
	k := readKustomization(t, selfSigned)
	if !slices.Equal(k.Resources, []string{"../../base", "rbac.yaml", "lease.yaml", "policy.yaml"}) || len(k.Patches) != 1 {
		t.Fatalf("the kustomization is %+v", k)
	}
	b := load(t)
	target := map[string]string{"kind": "Deployment", "name": b.deployment.Name, "namespace": b.deployment.Namespace}
	if !equality.Semantic.DeepEqual(k.Patches[0].Target, target) {
		t.Errorf("the patch is for %v", k.Patches[0].Target)
	}
	text, err := os.ReadFile(filepath.Join(selfSigned, k.Patches[0].Path))
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
	pod := &want.Spec.Template.Spec
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil })
	c := &pod.Containers[0]
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == manifests.TLSPath })
	c.Args = append(slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--tls-") }),
		fmt.Sprintf("--tls-secret=%s/%s", manifests.Namespace, manifests.TLSSecret))
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the Deployment is\n%+v, want\n%+v", got.Spec.Template.Spec, want.Spec.Template.Spec)
	}
}

// TestSelfSignedRBAC checks that the rights are for named objects, and only the necessary ones.
func TestSelfSignedRBAC(t *testing.T) {
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	var clusterRole rbacv1.ClusterRole
	var clusterBinding rbacv1.ClusterRoleBinding
	decodeStrictly(t, filepath.Join(selfSigned, "rbac.yaml"), &role, &binding, &clusterRole, &clusterBinding)
	b := load(t)
	wantRole := []rbacv1.PolicyRule{
		{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{manifests.TLSSecret},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch"},
		},
		{
			APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, ResourceNames: []string{certs.LeaseName},
			Verbs: []string{"get", "create", "update"},
		},
	}
	wantClusterRole := []rbacv1.PolicyRule{{
		APIGroups:     []string{admissionregistrationv1.GroupName},
		Resources:     []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
		ResourceNames: []string{b.mutating.Name}, Verbs: []string{"patch"},
	}, {
		APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"validatingwebhookconfigurations"},
		ResourceNames: []string{manifests.AdviseName}, Verbs: []string{"patch"},
	}}
	if !equality.Semantic.DeepEqual(role.Rules, wantRole) || role.Namespace != manifests.Namespace {
		t.Errorf("the Role in %s has %v, want %v", role.Namespace, role.Rules, wantRole)
	}
	if !equality.Semantic.DeepEqual(clusterRole.Rules, wantClusterRole) {
		t.Errorf("the ClusterRole has %v, want %v", clusterRole.Rules, wantClusterRole)
	}
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: b.serviceAccount.Name, Namespace: b.serviceAccount.Namespace}}
	if binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}) ||
		clusterBinding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name}) {
		t.Errorf("bound to %v and %v", binding.RoleRef, clusterBinding.RoleRef)
	}
	if !slices.Equal(binding.Subjects, subject) || !slices.Equal(clusterBinding.Subjects, subject) || binding.Namespace != role.Namespace {
		t.Errorf("bound for %v and %v", binding.Subjects, clusterBinding.Subjects)
	}
}

func TestNetworkPolicy(t *testing.T) {
	const dir = "components/network-policy"
	if k := readKustomization(t, dir); k.Kind != "Component" || !slices.Equal(k.Resources, []string{"networkpolicy.yaml", "controller.yaml"}) {
		t.Errorf("the kustomization is %+v", k)
	}
	var p networkingv1.NetworkPolicy
	decodeStrictly(t, filepath.Join(dir, "networkpolicy.yaml"), &p)
	b := load(t)
	if p.Namespace != manifests.Namespace || !equality.Semantic.DeepEqual(p.Spec.PodSelector, *b.deployment.Spec.Selector) {
		t.Errorf("it is for the pods %v of %s", p.Spec.PodSelector, p.Namespace)
	}
	if !slices.Equal(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
		t.Errorf("policyTypes are %v", p.Spec.PolicyTypes)
	}
	port := func(p intstr.IntOrString) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: &p}
	}
	ingress := []networkingv1.NetworkPolicyIngressRule{
		{Ports: []networkingv1.NetworkPolicyPort{port(intstr.FromString(manifests.WebhookPortName))}},
		{
			Ports: []networkingv1.NetworkPolicyPort{port(intstr.FromString(manifests.AdminPortName))},
			From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: "monitoring"},
			}}},
		},
	}
	egress := []networkingv1.NetworkPolicyEgressRule{
		{Ports: []networkingv1.NetworkPolicyPort{port(intstr.FromInt32(443)), port(intstr.FromInt32(6443))}},
	}
	if !equality.Semantic.DeepEqual(p.Spec.Ingress, ingress) {
		t.Errorf("ingress is %+v, want %+v", p.Spec.Ingress, ingress)
	}
	if !equality.Semantic.DeepEqual(p.Spec.Egress, egress) {
		t.Errorf("egress is %+v, want %+v", p.Spec.Egress, egress)
	}
}

// TestNetworkPolicyPatched checks that the page's patch restricts who can connect and what Pillion
// can reach. DNS names and traces still work.
func TestNetworkPolicyPatched(t *testing.T) {
	readme, err := os.ReadFile("docs/callers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## Who may connect")
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	var k struct{ Patches []struct{ Patch string } }
	if err := yaml.Unmarshal([]byte(block), &k); err != nil || len(k.Patches) != 1 {
		t.Fatalf("the page has %+v, %v", k, err)
	}
	asJSON := func(text []byte) []byte {
		t.Helper()
		text, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before, err := os.ReadFile("components/network-policy/networkpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(asJSON([]byte(k.Patches[0].Patch)))
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(asJSON(before))
	if err != nil {
		t.Fatal(err)
	}
	var p networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict(after, &p); err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{}
	for _, rule := range p.Spec.Egress {
		for _, port := range rule.Ports {
			reached[fmt.Sprintf("%s %s %t", *port.Protocol, port.Port, len(rule.To) > 0)] = true
		}
	}
	want := map[string]bool{"TCP 443 true": true, "TCP 6443 true": true, "UDP 53 true": true, "TCP 53 true": true, "TCP 4318 true": true}
	if !maps.Equal(reached, want) || len(p.Spec.Ingress[0].From) == 0 {
		t.Errorf("the policy is %+v", p.Spec)
	}
}
