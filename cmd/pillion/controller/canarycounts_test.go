// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// TestReconcileCountsCanaries checks that the status of a template never counts the pods of its canaries, neither among
// all pods nor among those that a rollout has updated.
func TestReconcileCountsCanaries(t *testing.T) {
	a, r := newAPI()
	a.put("", "one")
	of := types.NamespacedName{Name: "agent"}
	a.objects[of].Object["spec"].(map[string]any)["rollout"] = map[string]any{"strategy": "InPlaceOrRestart"}
	canary := a.objects[of].DeepCopy()
	canary.SetName("next")
	canary.Object["spec"].(map[string]any)["replaces"] = "agent"
	a.objects[types.NamespacedName{Name: "next"}] = canary
	var counted []string
	r.count = func(template types.NamespacedName, _ string, replacedBy ...string) v1alpha1.PodCounts {
		counted = append(counted, template.String()+" without "+strings.Join(replacedBy, " "))
		return v1alpha1.PodCounts{}
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: of}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/agent without next", "shop/agent without next"}; !slices.Equal(counted, want) {
		t.Errorf("counted %q, want %q:\n%s", counted, want, a.journal.String())
	}
	canary.SetGeneration(1)
	canary.Object["spec"].(map[string]any)["rollout"] = map[string]any{"strategy": "OnCreate"}
	counted = nil
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "next"}}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/next without "}; !slices.Equal(counted, want) {
		t.Errorf("without a rollout, counted %q, want %q", counted, want)
	}
}

// TestCountOfNamespace checks that only canaries of the same namespace reduce a count, and that no count is negative,
// whatever records users write.
func TestCountOfNamespace(t *testing.T) {
	p := newPods(nil)
	all := []any{
		pod("a", "canary", map[string]string{agentKey: first, proxyKey: first}),
		pod("b", "web", map[string]string{agentKey: first}),
		pod("c", "web", map[string]string{agentKey: first}),
		pod("c", "forged-1", map[string]string{proxyKey: first}),
		pod("c", "forged-2", map[string]string{proxyKey: first}),
	}
	if err := p.Replace(all, "1"); err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]int64{"a": 0, "b": 1, "c": 0} {
		if got := p.countPods(types.NamespacedName{Namespace: namespace, Name: "agent"}, first, "proxy"); got != (v1alpha1.PodCounts{Current: want}) {
			t.Errorf("the namespace %s has %+v, want %d", namespace, got, want)
		}
	}
}

// TestReplacing checks that a template is replaced only by templates of its own namespace.
func TestReplacing(t *testing.T) {
	scope := &templates.Set{}
	for _, of := range []types.NamespacedName{{Name: "next"}, {Namespace: "shop", Name: "own"}} {
		canary := &templates.Template{Name: of.Name, Namespace: of.Namespace}
		canary.Spec.Replaces = "agent"
		scope.Templates = append(scope.Templates, canary)
	}
	for namespace, want := range map[string]string{"": "next", "shop": "own"} {
		template := &kube.Entry{Namespace: namespace, Name: "agent"}
		if got := replacingNames(scope, template); !slices.Equal(got, []string{want}) {
			t.Errorf("in the namespace %q, the template is replaced by %q, want %q", namespace, got, want)
		}
	}
}
