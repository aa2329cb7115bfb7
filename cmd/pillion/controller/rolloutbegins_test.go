// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// TestRolloutWaitsForReady checks that no rollout begins before the controller has found the present content of the
// template valid.
func TestRolloutWaitsForReady(t *testing.T) {
	r := newRolled()
	r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web")} }
	template := r.objects[r.of]
	template.SetGeneration(template.GetGeneration() + 1)
	if r.reconcile(t); r.plans != 0 {
		t.Errorf("%d plans for content of which nothing is known yet", r.plans)
	}
	r.rollout(map[string]any{"strategy": "InPlace"})
	conditions, _, _ := unstructured.NestedSlice(template.Object, "status", "conditions")
	conditions[0].(map[string]any)["status"] = "False"
	if err := unstructured.SetNestedSlice(template.Object, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if r.reconcile(t); r.plans != 0 {
		t.Errorf("%d plans for invalid content", r.plans)
	}
	r.rollout(map[string]any{"strategy": "InPlace"})
	if r.reconcile(t); r.plans == 0 {
		t.Error("there is no plan for valid content")
	}
}

// TestRolloutNamespaces checks that a rollout is only for namespaces with the label, and that of a namespaced template
// for its own namespace.
func TestRolloutNamespaces(t *testing.T) {
	for _, c := range []struct {
		namespace     string // of the template
		enabled, want []string
	}{
		{"", []string{"shop", "till"}, []string{"shop", "till"}},
		{"", nil, nil},
		{"shop", []string{"shop", "till"}, []string{"shop"}},
		{"shop", []string{"till"}, nil},
		{"shop", nil, nil},
	} {
		template := newObject(v1alpha1.NamespacedKind)
		template.SetNamespace(c.namespace)
		r := &rollouts{}
		if got := r.namespacesOf(template); len(got) > 0 {
			t.Errorf("before the namespaces are known, the template of the namespace %q has %q", c.namespace, got)
		}
		r.enabled.Store(&c.enabled)
		if got := r.namespacesOf(template); !slices.Equal(got, c.want) {
			t.Errorf("the label is on %q: the template of the namespace %q has %q, want %q", c.enabled, c.namespace, got, c.want)
		}
	}
}
