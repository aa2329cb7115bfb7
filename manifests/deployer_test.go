// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
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

// rights are "group/resource/name/verb"; a name may be any (*).
type rights map[string]bool

func (r rights) add(rules ...rbacv1.PolicyRule) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{"*"}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						r[strings.Join([]string{group, resource, name, verb}, "/")] = true
					}
				}
			}
		}
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

// TestDeployer checks that a deployer may get and apply each object of base and overlays by its name,
// has the rights that it grants to Pillion, and nothing else.
func TestDeployer(t *testing.T) {
	t.Parallel()
	everywhere, inside := rights{}, rights{}
	get := []string{"get", "create", "patch"}
	inside.add(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{manifests.TemplatesConfigMap}, Verbs: get})
	files, err := filepath.Glob("overlays/*/*.yaml")
	based, err2 := filepath.Glob("base/*.yaml")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	kinds, err := filepath.Glob("crds/*.yaml")
	controller, err2 := filepath.Glob("controller/*.yaml")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, file := range slices.Concat(files, based, kinds, controller) {
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
			resource := resourceOf(o.Kind)
			where := everywhere
			if o.Namespace != "" {
				where = inside
			}
			where.add(rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: []string{o.Name}, Verbs: get})
			where.add(o.Rules...)
		}
	}

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
	for _, c := range []struct {
		where string
		want  rights
		rules []rbacv1.PolicyRule
	}{{"everywhere", everywhere, clusterRole.Rules}, {"in " + manifests.Namespace, inside, role.Rules}} {
		got := rights{}
		got.add(c.rules...)
		for _, right := range slices.Sorted(maps.Keys(got)) {
			if !c.want[right] {
				t.Errorf("%s, nobody needs %s", c.where, right)
			}
		}
		for _, right := range slices.Sorted(maps.Keys(c.want)) {
			if !got[right] {
				t.Errorf("%s, %s is missing", c.where, right)
			}
		}
	}
	if !slices.Equal(binding.Subjects, clusterBinding.Subjects) || len(binding.Subjects) != 1 {
		t.Errorf("bound for %v and %v", binding.Subjects, clusterBinding.Subjects)
	}
}
