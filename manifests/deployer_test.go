// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/manifests"
)

// rights are those of any namespace, or of Pillion's.
type rights map[manifests.Right]bool

func (r rights) add(rules ...rbacv1.PolicyRule) {
	for _, right := range manifests.Expand("", rules...) {
		r[right] = true
	}
}

// resourceOf is what API servers call the objects of a kind.
func resourceOf(kind string) string {
	kind = strings.ToLower(kind)
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	if strings.HasSuffix(kind, "s") {
		return kind + "es"
	}
	return kind + "s"
}

// needed returns the rights to apply the objects in these files, and to grant the rights in them.
func needed(t *testing.T, patterns ...string) (everywhere, inside rights) {
	t.Helper()
	everywhere, inside = rights{}, rights{}
	get := []string{"get", "create", "patch"}
	inside.add(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{manifests.TemplatesConfigMap}, Verbs: get})
	for _, pattern := range append([]string{"base/*.yaml", "crds/*.yaml", "advise/*.yaml", "controller/*.yaml"}, patterns...) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for doc := range strings.SplitSeq(string(text), "\n---\n") {
				var o struct {
					metav1.PartialObjectMetadata
					Rules []rbacv1.PolicyRule `json:"rules"`
				}
				if err := yaml.Unmarshal([]byte(doc), &o); err != nil || o.Name == "" {
					continue // a patch, or a kustomization
				}
				group, _, grouped := strings.Cut(o.APIVersion, "/")
				if !grouped {
					group = ""
				}
				where := everywhere
				if o.Namespace != "" {
					where = inside
				}
				where.add(rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resourceOf(o.Kind)}, ResourceNames: []string{o.Name}, Verbs: get})
				where.add(o.Rules...)
			}
		}
	}
	return everywhere, inside
}

// compare checks that the rules grant the rights, and nothing else.
func (r rights) compare(t *testing.T, where string, rules []rbacv1.PolicyRule) {
	t.Helper()
	got := rights{}
	got.add(rules...)
	for right := range got {
		if !r[right] {
			t.Errorf("%s, nobody needs %s", where, right)
		}
	}
	for right := range r {
		if !got[right] {
			t.Errorf("%s, %s is missing", where, right)
		}
	}
}

// TestDeployerRights checks that the rights to install an overlay are those that it needs.
func TestDeployerRights(t *testing.T) {
	t.Parallel()
	for _, overlay := range []string{manifests.OverlayCertManager, manifests.OverlaySelfSigned} {
		everywhere, inside := needed(t, "overlays/"+overlay+"/*.yaml")
		got, err := manifests.DeployerRights(overlay)
		if err != nil {
			t.Fatal(err)
		}
		everywhere.compare(t, overlay+", everywhere", got.Cluster)
		inside.compare(t, overlay+", in "+manifests.Namespace, got.Namespaced)
	}
}

// TestAccountRights checks that the rights of the ServiceAccounts are those of their roles.
func TestAccountRights(t *testing.T) {
	t.Parallel()
	certManager, err := manifests.ServerRights(false)
	selfSigned, err2 := manifests.ServerRights(true)
	controller, err3 := manifests.ControllerRights()
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	for what, n := range map[string][2]int{"cert-manager": {len(certManager.Cluster), len(certManager.Namespaced)}, "self-signed": {len(selfSigned.Cluster), len(selfSigned.Namespaced)}, "controller": {len(controller.Cluster), len(controller.Namespaced)}} {
		if want := map[string][2]int{"cert-manager": {4, 0}, "self-signed": {6, 2}, "controller": {7, 5}}[what]; n != want {
			t.Errorf("%s has %v rules, want %v", what, n, want)
		}
	}
}

// TestDeployer checks that a deployer may get and apply each object of base and overlays by its name,
// has the rights that it grants to Pillion, and nothing else.
func TestDeployer(t *testing.T) {
	t.Parallel()
	everywhere, inside := needed(t, "overlays/*/*.yaml")
	var role, clusterRole struct{ Rules []rbacv1.PolicyRule }
	var binding, clusterBinding struct{ Subjects []rbacv1.Subject }
	decode := func(doc string, into any) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(doc), into); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("deployer.yaml")
	documents := strings.Split(string(text), "\n---\n")
	if err != nil || len(documents) != 4 {
		t.Fatal(len(documents), "documents", err)
	}
	decode(documents[0], &clusterRole)
	decode(documents[1], &clusterBinding)
	decode(documents[2], &role)
	decode(documents[3], &binding)
	everywhere.compare(t, "everywhere", clusterRole.Rules)
	inside.compare(t, "in "+manifests.Namespace, role.Rules)
	if !slices.Equal(binding.Subjects, clusterBinding.Subjects) || len(binding.Subjects) != 1 {
		t.Errorf("bound for %v and %v", binding.Subjects, clusterBinding.Subjects)
	}
}

// TestDeployerHelm checks that with Helm, the same group may also write Secrets in Pillion's namespace, and nothing else.
func TestDeployerHelm(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("deployer-helm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	first, second, _ := strings.Cut(string(text), "\n---\n")
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &role), yaml.UnmarshalStrict([]byte(second), &binding)); err != nil {
		t.Fatal(err)
	}
	want := rights{}
	want.add(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "update", "delete"}})
	want.compare(t, "with Helm", role.Rules)
	group := []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "pillion-deployers"}}
	if role.Namespace != manifests.Namespace || binding.Namespace != role.Namespace || binding.RoleRef.Kind != "Role" || binding.RoleRef.Name != role.Name || !slices.Equal(binding.Subjects, group) {
		t.Errorf("the role is %s/%s, and the binding is %+v", role.Namespace, role.Name, binding)
	}
}
