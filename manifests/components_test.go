// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/manifests"
)

// loadWith returns the base with the inline patches of a component or an overlay.
func loadWith(t *testing.T, dir string) *base {
	t.Helper()
	var k struct {
		Patches []struct {
			Target map[string]string `json:"target"`
			Patch  string            `json:"patch"`
		} `json:"patches"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	b := load(t)
	for _, p := range k.Patches {
		operations, err := yaml.YAMLToJSON([]byte(p.Patch))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(operations)
		if err != nil {
			t.Fatal(err)
		}
		patched := 0
		targets := b.targets()
		targets["admissionregistration.k8s.io/advise/ValidatingWebhookConfiguration"] = &b.advising
		for id, object := range targets {
			parts := strings.Split(id, "/")
			is := map[string]string{"group": parts[0], "kind": parts[len(parts)-1], "name": object.GetName(), "namespace": object.GetNamespace()}
			if !selects(p.Target, is) {
				continue
			}
			patched++
			before, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			after, err := patch.Apply(before)
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			if err := json.Unmarshal(after, object); err != nil {
				t.Fatal(err)
			}
		}
		if patched == 0 {
			t.Errorf("%s: a patch is for no object: %v", dir, p.Target)
		}
	}
	return b
}

func selects(target, object map[string]string) bool {
	for key, want := range target {
		if object[key] != want {
			return false
		}
	}
	return true
}

// TestFailurePolicies checks what happens to a pod if Pillion does not answer. By default, a pod is not injected and
// then denied, because the validating webhook fails closed. With fail-closed, both webhooks deny it; with fail-open,
// neither does. In no case does an entry deny anything that only reports, or that checks templates.
func TestFailurePolicies(t *testing.T) {
	const open, closed = admissionregistrationv1.Ignore, admissionregistrationv1.Fail
	for dir, want := range map[string]struct {
		mutate, validate admissionregistrationv1.FailurePolicyType
	}{
		"overlays/cert-manager":  {open, closed},
		"components/exempt-pods": {open, closed},
		"components/fail-closed": {closed, closed},
		"components/fail-open":   {open, open},
	} {
		mutating, validating := entries(loadWith(t, dir))
		for _, e := range slices.Concat(mutating, validating) {
			policy := map[string]admissionregistrationv1.FailurePolicyType{
				manifests.MutateNamespaceEntry: want.mutate, manifests.MutatePodEntry: want.mutate,
				manifests.ValidateNamespaceEntry: want.validate, manifests.ValidatePodEntry: want.validate,
				manifests.ShadowEntry: open, manifests.LintEntry: open,
			}[e.Name]
			if e.FailurePolicy == nil || *e.FailurePolicy != policy {
				t.Errorf("%s: the failurePolicy of %s is %v, want %s", dir, e.Name, e.FailurePolicy, policy)
			}
		}
	}
}

// TestFailOpenWarns checks that with fail-open, a pod that was not injected is not denied for that reason. By default
// it is, because the flag's default is to deny.
func TestFailOpenWarns(t *testing.T) {
	const flag = "--uninjected-pods=Warn"
	for dir, want := range map[string]bool{"components/fail-open": true, "components/fail-closed": false} {
		if got := slices.Contains(loadWith(t, dir).deployment.Spec.Template.Spec.Containers[0].Args, flag); got != want {
			t.Errorf("%s has %s: %t", dir, flag, got)
		}
	}
}

// TestCertManagerNamespace checks that no entry for pods matches those of cert-manager, because it must be able to start
// while Pillion is down, and that Pillion itself knows that. All other namespaces are matched as in the base.
func TestCertManagerNamespace(t *testing.T) {
	b := loadWith(t, certManagerOverlay)
	if args := b.deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--exclude-namespace=cert-manager") {
		t.Errorf("the arguments are %q", args)
	}
	mutating, validating := entries(b)
	baseMutating, baseValidating := entries(load(t))
	all, before := slices.Concat(mutating, validating[:3]), slices.Concat(baseMutating, baseValidating[:3])
	for i, e := range all {
		for _, name := range append(inject.SystemNamespaces(), "cert-manager", "default", "team-a") {
			for _, namespace := range optIns(labels.Set{corev1.LabelMetadataName: name}) {
				for _, pod := range optIns(labels.Set{"app": "web"}) {
					want := name != "cert-manager" && before[i].matches(t, namespace, pod)
					if got := e.matches(t, namespace, pod); got != want {
						t.Errorf("%s matches %t: namespace %v, pod %v", e.Name, got, namespace, pod)
					}
				}
			}
		}
	}
}

// TestExemptPods checks that no entry for pods matches one with the label, whatever its value, and that all others are
// matched as in the base.
func TestExemptPods(t *testing.T) {
	mutating, validating := entries(loadWith(t, "components/exempt-pods"))
	baseMutating, baseValidating := entries(load(t))
	all, before := slices.Concat(mutating, validating[:3]), slices.Concat(baseMutating, baseValidating[:3])
	for i, e := range all {
		for _, namespace := range optIns(labels.Set{corev1.LabelMetadataName: "team-a"}) {
			for _, pod := range optIns(labels.Set{"app": "web"}) {
				if got, want := e.matches(t, namespace, pod), before[i].matches(t, namespace, pod); got != want {
					t.Errorf("%s matches %t: namespace %v, pod %v", e.Name, got, namespace, pod)
				}
				for _, value := range []string{"", "true", "false"} {
					if e.matches(t, namespace, labels.Merge(pod, labels.Set{"pillion.dev/exempt": value})) {
						t.Errorf("%s matches an exempt pod: namespace %v, pod %v", e.Name, namespace, pod)
					}
				}
			}
		}
	}
}

// TestExemptAdvice checks that authors of workloads with exempt pods get no advice, and those of others get it.
func TestExemptAdvice(t *testing.T) {
	_, all := entries(&base{validating: loadWith(t, "components/exempt-pods").advising})
	for _, e := range all[:2] {
		for _, kind := range []string{"template", "jobTemplate"} {
			for _, exempt := range []bool{false, true} {
				pod := labels.Set{inject.LabelInject: inject.Enabled}
				if exempt {
					pod[inject.LabelExempt] = ""
				}
				if got := holds(t, e, workloadOf(t, kind, pod, nil), nil, "jane"); got == exempt {
					t.Errorf("%s is called for the %s of exempt pods (%t): %t", e.Name, kind, exempt, got)
				}
			}
		}
	}
}

// evaluation evaluates the CEL expressions of an admission policy.
type evaluation struct {
	t         *testing.T
	env       *cel.Env
	variables map[string]any
}

func newEvaluation(t *testing.T, variables map[string]any) *evaluation {
	t.Helper()
	options := []cel.EnvOption{cel.OptionalTypes(), cel.HomogeneousAggregateLiterals()} // as API servers
	for name := range variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(append(options, cel.Variable("variables", cel.DynType))...)
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(variables)
	all["variables"] = map[string]any{}
	return &evaluation{t, env, all}
}

// value returns the value of an expression, or an error if the evaluation has one.
func (e *evaluation) value(expression string) (any, error) {
	e.t.Helper()
	ast, issues := e.env.Compile(expression)
	if issues.Err() != nil {
		e.t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := e.env.Program(ast)
	if err != nil {
		e.t.Fatal(err)
	}
	out, _, err := program.Eval(e.variables)
	return out, err
}

// allows reports whether a policy allows the request. Like API servers, it denies a request if there is an error and
// the policy fails closed.
func allows(t *testing.T, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, request map[string]any) bool {
	t.Helper()
	e := newEvaluation(t, request)
	onError := spec.FailurePolicy != nil && *spec.FailurePolicy == admissionregistrationv1.Ignore
	for _, c := range spec.MatchConditions {
		switch holds, err := e.value(c.Expression); {
		case err != nil:
			return onError
		case holds != types.True:
			return true
		}
	}
	for _, v := range spec.Variables {
		if value, err := e.value(v.Expression); err == nil { // an error matters only to expressions that use the variable
			e.variables["variables"].(map[string]any)[v.Name] = value
		}
	}
	for _, v := range spec.Validations {
		switch holds, err := e.value(v.Expression); {
		case err != nil:
			return onError
		case holds != types.True:
			return false
		}
	}
	return true
}

// checkBinding checks that a policy denies, fails closed, and is for these requests, to v1 of an API.
func checkBinding(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy, binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding,
	resources []schema.GroupResource, operations ...admissionregistrationv1.OperationType,
) {
	t.Helper()
	if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("%s: if it cannot be evaluated, the request is allowed", policy.Name)
	}
	if binding.Spec.PolicyName != policy.Name || !slices.Equal(binding.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
		t.Errorf("the binding is %+v", binding.Spec)
	}
	var got []schema.GroupResource
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				got = append(got, schema.GroupResource{Group: group, Resource: resource})
			}
		}
		if !slices.Equal(rule.APIVersions, []string{"v1"}) || !slices.Equal(rule.Operations, operations) || len(rule.ResourceNames) > 0 {
			t.Errorf("%s is for %+v", policy.Name, rule)
		}
	}
	if !slices.Equal(got, resources) {
		t.Errorf("%s is for %v, want %v", policy.Name, got, resources)
	}
}

// TestStaticPods checks that the policy denies pods with the annotation of a mirror pod, which no webhook of Pillion is
// called for, in all namespaces but kube-system.
func TestStaticPods(t *testing.T) {
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	decodeStrictly(t, "components/static-pods/policy.yaml", &policy, &binding)
	checkBinding(t, &policy, &binding, []schema.GroupResource{{Resource: "pods"}}, admissionregistrationv1.Create)
	for pod, want := range map[string]bool{
		`{"metadata":{}}`:                 true,
		`{"metadata":{"annotations":{}}}`: true,
		`{"metadata":{"annotations":{"a":"kubernetes.io/config.mirror"}}}`:      true,
		`{"metadata":{"labels":{"kubernetes.io/config.mirror":"x"}}}`:           true,
		`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"0a1b2c"}}}`: false,
		`{"metadata":{"annotations":{"kubernetes.io/config.mirror":""}}}`:       false,
	} {
		if got := allows(t, &policy.Spec, map[string]any{"object": decode(t, pod)}); got != want {
			t.Errorf("%s is allowed: %t", pod, got)
		}
	}
	if binding.Spec.MatchResources == nil || binding.Spec.MatchResources.ObjectSelector != nil {
		t.Fatalf("the binding is for %+v", binding.Spec.MatchResources)
	}
	selector, err := metav1.LabelSelectorAsSelector(binding.Spec.MatchResources.NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"kube-system": false, "kube-public": true, "default": true, "team-a": true, manifests.Namespace: true} {
		if got := selector.Matches(labels.Set{corev1.LabelMetadataName: name}); got != want {
			t.Errorf("in %s, it denies static pods: %t", name, got)
		}
	}
}

// TestBundlePolicy checks what a client with the token of Pillion's ServiceAccount may do to a webhook configuration:
// it may change the caBundle of webhooks, and nothing else. All other clients are unaffected.
func TestBundlePolicy(t *testing.T) {
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	decodeStrictly(t, filepath.Join(selfSigned, "policy.yaml"), &policy, &binding)
	configurations := []schema.GroupResource{
		{Group: admissionregistrationv1.GroupName, Resource: "mutatingwebhookconfigurations"},
		{Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations"},
	}
	checkBinding(t, &policy, &binding, configurations, admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete)
	if binding.Spec.MatchResources != nil {
		t.Errorf("the binding is only for %+v", binding.Spec.MatchResources)
	}
	const before = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration",
"metadata":{"name":"pillion","resourceVersion":"1","generation":1,"labels":{"a":"b"},"managedFields":[]},
"webhooks":[{"name":"a","failurePolicy":"Fail","clientConfig":{"caBundle":"Cg==","service":{"name":"pillion","namespace":"pillion-system"}}},
{"name":"b","clientConfig":{"service":{"name":"pillion","namespace":"pillion-system"}}}]}`
	const pillion, another = "system:serviceaccount:pillion-system:pillion", "system:serviceaccount:pillion-system:other"
	for _, c := range []struct {
		what, user, operation string
		patch                 string // of the object
		want                  bool
	}{
		{"another bundle", pillion, "UPDATE", `[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":"Cgo="}]`, true},
		{"the first bundle", pillion, "UPDATE", `[{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":"Cgo="}]`, true},
		{"no bundle", pillion, "UPDATE", `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`, true},
		{"what the API server sets", pillion, "UPDATE", `[{"op":"replace","path":"/metadata/resourceVersion","value":"2"},{"op":"replace","path":"/metadata/generation","value":2},{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`, true},
		{"another service", pillion, "UPDATE", `[{"op":"replace","path":"/webhooks/0/clientConfig/service/name","value":"x"}]`, false},
		{"a URL", pillion, "UPDATE", `[{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://x"}]`, false},
		{"no service", pillion, "UPDATE", `[{"op":"remove","path":"/webhooks/0/clientConfig/service"}]`, false},
		{"another field", pillion, "UPDATE", `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`, false},
		{"one more field", pillion, "UPDATE", `[{"op":"add","path":"/webhooks/1/timeoutSeconds","value":1}]`, false},
		{"one field less", pillion, "UPDATE", `[{"op":"remove","path":"/webhooks/0/failurePolicy"}]`, false},
		{"one more webhook", pillion, "UPDATE", `[{"op":"add","path":"/webhooks/-","value":{"name":"c","clientConfig":{}}}]`, false},
		{"one webhook less", pillion, "UPDATE", `[{"op":"remove","path":"/webhooks/1"}]`, false},
		{"another order", pillion, "UPDATE", `[{"op":"move","from":"/webhooks/0","path":"/webhooks/1"}]`, false},
		{"no webhooks", pillion, "UPDATE", `[{"op":"remove","path":"/webhooks"}]`, false},
		{"a label", pillion, "UPDATE", `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`, false},
		{"an annotation", pillion, "UPDATE", `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`, false},
		{"no labels", pillion, "UPDATE", `[{"op":"remove","path":"/metadata/labels"}]`, false},
		{"a field of a later version", pillion, "UPDATE", `[{"op":"add","path":"/spec","value":{}}]`, false},
		{"in another namespace", "system:serviceaccount:x:pillion", "UPDATE", `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`, false},
		{"creation", pillion, "CREATE", `[]`, false},
		{"deletion", pillion, "DELETE", `[]`, false},
		{"by another", another, "UPDATE", `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`, true},
		{"by a user", "pillion", "UPDATE", `[{"op":"remove","path":"/webhooks"}]`, true},
		{"by a user of that name", "x:pillion", "DELETE", `[]`, true},
	} {
		patch, err := jsonpatch.DecodePatch([]byte(c.patch))
		if err != nil {
			t.Fatal(err)
		}
		after, err := patch.Apply([]byte(before))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		request := map[string]any{
			"object": decode(t, string(after)), "oldObject": decode(t, before),
			"request": map[string]any{"operation": c.operation, "userInfo": map[string]any{"username": c.user}},
		}
		switch c.operation {
		case "CREATE":
			request["oldObject"] = nil
		case "DELETE":
			request["object"] = nil
		}
		if got := allows(t, &policy.Spec, request); got != c.want {
			t.Errorf("%s: it is allowed: %t", c.what, got)
		}
	}
}
