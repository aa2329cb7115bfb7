// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/manifests"
)

// entry is what both kinds of webhooks say in the same words.
type entry struct {
	Name                    string
	ClientConfig            admissionregistrationv1.WebhookClientConfig
	Rules                   []admissionregistrationv1.RuleWithOperations
	NamespaceSelector       *metav1.LabelSelector
	ObjectSelector          *metav1.LabelSelector
	MatchConditions         []admissionregistrationv1.MatchCondition
	MatchPolicy             *admissionregistrationv1.MatchPolicyType
	FailurePolicy           *admissionregistrationv1.FailurePolicyType
	SideEffects             *admissionregistrationv1.SideEffectClass
	TimeoutSeconds          *int32
	AdmissionReviewVersions []string
}

func entries(b *base) (mutating, validating []entry) {
	for _, w := range b.mutating.Webhooks {
		mutating = append(mutating, entry{
			w.Name, w.ClientConfig, w.Rules, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions,
			w.MatchPolicy, w.FailurePolicy, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions,
		})
	}
	for _, w := range b.validating.Webhooks {
		validating = append(validating, entry{
			w.Name, w.ClientConfig, w.Rules, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions,
			w.MatchPolicy, w.FailurePolicy, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions,
		})
	}
	return mutating, validating
}

func TestEntries(t *testing.T) { checkEntries(t) }

func checkEntries(t testing.TB) {
	t.Helper()
	b := load(t)
	mutating, validating := entries(b)
	check(t, mutating, manifests.MutatePath, admissionregistrationv1.Ignore, manifests.MutateNamespaceEntry, manifests.MutatePodEntry)
	check(t, validating[:2], manifests.ValidatePath, admissionregistrationv1.Fail, manifests.ValidateNamespaceEntry, manifests.ValidatePodEntry)
	check(t, validating[2:3], manifests.ShadowPath, admissionregistrationv1.Ignore, manifests.ShadowEntry)
	checkLint(t, validating[3:])
	for _, w := range b.mutating.Webhooks {
		if w.ReinvocationPolicy == nil || *w.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
			t.Errorf("%s: reinvocationPolicy is not IfNeeded", w.Name)
		}
	}
}

// checkLint checks the entry for templates. It selects no namespace and no object: a template with a
// mistake is rejected wherever it is.
func checkLint(t testing.TB, entries []entry) {
	t.Helper()
	if len(entries) != 1 {
		t.Fatalf("%d entries are for templates", len(entries))
	}
	want := entry{
		Name: manifests.LintEntry,
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: manifests.Namespace, Name: manifests.Name, Path: new(manifests.LintPath), Port: new(int32(manifests.ServicePort)),
		}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"pillion.dev"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"clustersidecartemplates", "sidecartemplates"},
				Scope: new(admissionregistrationv1.AllScopes),
			},
		}},
		MatchPolicy: new(admissionregistrationv1.Equivalent), FailurePolicy: new(admissionregistrationv1.Ignore),
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: new(int32(10)), AdmissionReviewVersions: []string{"v1", "v1beta1"},
	}
	if !equality.Semantic.DeepEqual(entries[0], want) {
		t.Errorf("%s is\n%+v, want\n%+v", entries[0].Name, entries[0], want)
	}
}

func check(t testing.TB, entries []entry, path string, policy admissionregistrationv1.FailurePolicyType, names ...string) {
	t.Helper()
	timeout := int32(5)
	if path == manifests.ShadowPath {
		timeout = 2 // no request waits for a webhook that only warns
	}
	for i, e := range entries {
		if i >= len(names) {
			t.Fatalf("one entry too many: %s", e.Name)
		}
		want := e // the selectors and the matchCondition have tests of their own
		want.Name = names[i]
		want.ClientConfig = admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: manifests.Namespace, Name: manifests.Name, Path: &path, Port: new(int32(manifests.ServicePort)),
		}}
		want.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		}}
		want.MatchPolicy = new(admissionregistrationv1.Equivalent)
		want.FailurePolicy = &policy
		want.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
		want.TimeoutSeconds = &timeout
		want.AdmissionReviewVersions = []string{"v1", "v1beta1"}
		if !equality.Semantic.DeepEqual(e, want) {
			t.Errorf("%s is\n%+v, want\n%+v", e.Name, e, want)
		}
	}
	if len(entries) != len(names) {
		t.Errorf("%d entries, want %q", len(entries), names)
	}
}

// matches is what the API server does with an entry's two selectors.
func (e entry) matches(t testing.TB, namespace, pod labels.Set) bool {
	t.Helper()
	for _, s := range []struct {
		selector *metav1.LabelSelector
		labels   labels.Set
	}{{e.NamespaceSelector, namespace}, {e.ObjectSelector, pod}} {
		if s.selector == nil { // for the API server, this matches everything
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(s.selector)
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		if !selector.Matches(s.labels) {
			return false
		}
	}
	return true
}

// TestSelectors checks every kind of namespace and pod. The first entry is called if the namespace
// opted in. The second entry is called if the namespace has no label and the pod opted in. The
// third entry of the validating webhook is called if the namespace is in shadow. No two entries are
// called for one pod.
func TestSelectors(t *testing.T) { checkSelectors(t) }

func checkSelectors(t testing.TB) {
	t.Helper()
	mutating, validating := entries(load(t))
	namespaces := append(inject.SystemNamespaces(), "default", "team-a")
	for _, name := range namespaces {
		for _, ns := range optIns(labels.Set{corev1.LabelMetadataName: name}) {
			for _, pod := range optIns(labels.Set{"app": "web"}) {
				excluded := slices.Contains(inject.SystemNamespaces(), name)
				nsSays, nsHas := ns[inject.LabelInject]
				byNamespace := !excluded && nsSays == inject.Enabled
				byPod := !excluded && !nsHas && pod[inject.LabelInject] == inject.Enabled
				for _, w := range [][]entry{mutating, validating} {
					if got := w[0].matches(t, ns, pod); got != byNamespace {
						t.Errorf("%s matches %t: namespace %v, pod %v", w[0].Name, got, ns, pod)
					}
					if got := w[1].matches(t, ns, pod); got != byPod {
						t.Errorf("%s matches %t: namespace %v, pod %v", w[1].Name, got, ns, pod)
					}
				}
				if got := validating[2].matches(t, ns, pod); got != (!excluded && nsSays == inject.Shadow) {
					t.Errorf("%s matches %t: namespace %v, pod %v", validating[2].Name, got, ns, pod)
				}
			}
		}
	}
}

// optIns are the labels without the opt-in, and with each value of it.
func optIns(set labels.Set) []labels.Set {
	all := []labels.Set{set}
	for _, value := range []string{inject.Enabled, inject.Disabled, inject.Shadow, "", "true", "Enabled"} {
		all = append(all, labels.Merge(set, labels.Set{inject.LabelInject: value}))
	}
	return all
}

// TestMatchConditionNeverErrs checks that no condition fails, because a failed condition denies the
// pod under failurePolicy Fail.
func TestMatchConditionNeverErrs(t *testing.T) { checkMatchConditionNeverErrs(t) }

func checkMatchConditionNeverErrs(t testing.TB) {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	mutating, validating := entries(load(t))
	for _, e := range slices.Concat(mutating, validating[:3]) {
		if len(e.MatchConditions) != 1 || e.MatchConditions[0].Name != "not-mirror-pod" {
			t.Fatalf("%s: matchConditions are %v", e.Name, e.MatchConditions)
		}
		ast, issues := env.Compile(e.MatchConditions[0].Expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", e.Name, issues.Err())
		}
		if !ast.OutputType().IsExactType(cel.BoolType) {
			t.Fatalf("%s: gives a %s", e.Name, ast.OutputType())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		for pod, want := range map[string]bool{
			`null`:                              true, // as on DELETE
			`{}`:                                true,
			`{"metadata":null}`:                 true,
			`{"metadata":{}}`:                   true,
			`{"metadata":{"annotations":null}}`: true,
			`{"metadata":{"annotations":{}}}`:   true,
			`{"metadata":{"annotations":{"a":"kubernetes.io/config.mirror"}}}`:      true,
			`{"metadata":{"labels":{"kubernetes.io/config.mirror":"x"}}}`:           true,
			`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"0a1b2c"}}}`: false,
			`{"metadata":{"annotations":{"kubernetes.io/config.mirror":""}}}`:       false,
		} {
			out, _, err := program.Eval(map[string]any{"object": decode(t, pod)})
			if err != nil || out != types.Bool(want) {
				t.Errorf("%s on %s: %v, %v; want %t", e.Name, pod, out, err, want)
			}
		}
	}
}

func decode(t testing.TB, document string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(document), &v); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", document, err))
	}
	return v
}
