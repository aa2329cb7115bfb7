// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

const adviseFolder = "advise"

// loadAdvise reads the entries by the eyes of [entry].
func loadAdvise(t *testing.T) (admissionregistrationv1.ValidatingWebhookConfiguration, []entry) {
	t.Helper()
	b := load(t)
	_, all := entries(&base{validating: b.advising})
	return b.advising, all
}

// TestAdviseEntries checks the webhook configuration of /advise: its name, labels, annotations, path and entries.
func TestAdviseEntries(t *testing.T) {
	c, all := loadAdvise(t)
	if c.Name != manifests.AdviseName || c.Name != certs.Advising.Named(manifests.Name) || c.Labels["app.kubernetes.io/name"] != manifests.Name {
		t.Errorf("its name is %q, its labels are %v", c.Name, c.Labels)
	}
	overlay := loadWith(t, certManagerOverlay)
	if len(c.Annotations) > 0 || !equality.Semantic.DeepEqual(overlay.advising.Annotations, overlay.validating.Annotations) {
		t.Errorf("its annotations are %v, and %v with cert-manager", c.Annotations, overlay.advising.Annotations)
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
		if e.Name == manifests.AdviseMistakeEntry {
			want.Rules = []admissionregistrationv1.RuleWithOperations{rule("", "namespaces")}
			want.Rules[0].Scope = new(admissionregistrationv1.ClusterScope)
		}
		want.MatchPolicy = new(admissionregistrationv1.Equivalent)
		want.FailurePolicy = new(admissionregistrationv1.Ignore)
		want.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
		want.TimeoutSeconds = new(int32(1))
		want.AdmissionReviewVersions = []string{"v1", "v1beta1"}
		want.ObjectSelector = nil
		if !equality.Semantic.DeepEqual(e, want) {
			t.Errorf("%s is\n%+v, want\n%+v", e.Name, e, want)
		}
	}
	if want := []string{manifests.AdviseNamespaceEntry, manifests.AdvisePodEntry, manifests.AdviseMistakeEntry}; !slices.Equal(names, want) {
		t.Errorf("entries %q, want %q", names, want)
	}
}

// forWorkloads returns the entries for workloads: the first for namespaces that opted in, the second for pods that do.
func forWorkloads(t *testing.T) []entry {
	t.Helper()
	_, all := loadAdvise(t)
	return all[:2]
}

// TestAdviseSelectors checks that the webhook is called for a workload if it is called for the workload's pods, or if the opt-in
// label of the pods has a value that means nothing, and for no other. The namespaceSelectors are those of the base, and the
// matchCondition corresponds to its selector of pods.
func TestAdviseSelectors(t *testing.T) {
	mutating, _ := entries(load(t))
	all := forWorkloads(t)
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
		got := e.matches(t, ns, nil) && holds(t, e, object, nil, "jane")
		want := mutating[i].matches(t, ns, meansToOptIn(pod)) || mutating[i].matches(t, ns, meansToOptIn(own))
		if got != want {
			t.Errorf("%s matches %t: namespace %v, %s %v, itself %v", e.Name, got, ns, workload, pod, own)
		}
	}
}

// meansToOptIn returns the labels with a right opt-in label, if they have one that does not opt out.
func meansToOptIn(set labels.Set) labels.Set {
	if value, ok := set[inject.LabelInject]; ok && value != inject.Disabled {
		return labels.Merge(set, labels.Set{inject.LabelInject: inject.Enabled})
	}
	return set
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
	all := forWorkloads(t)
	byController := []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "controller": true}}
	byOthers := []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "controller": false}}
	optedIn := labels.Set{inject.LabelInject: inject.Enabled}
	for _, e := range all {
		for _, workload := range []string{"template", "jobTemplate"} {
			if holds(t, e, workloadOf(t, workload, optedIn, byController), nil, "jane") {
				t.Errorf("%s is called for what a controller made", e.Name)
			}
			for user, want := range map[string]bool{
				"jane": true, "system:serviceaccount:kube-system:helm": true, "system:serviceaccount:argocd:application-controller": true,
				"system:kube-controller-manager": false, "system:serviceaccount:kube-system:deployment-controller": false,
			} {
				if got := holds(t, e, workloadOf(t, workload, optedIn, byOthers), nil, user); got != want {
					t.Errorf("%s is called for %s: %t", e.Name, user, got)
				}
			}
		}
		for _, odd := range []string{`{}`, `{"metadata":{}}`, `{"metadata":{"ownerReferences":[]},"spec":{}}`, `{"spec":{"template":{}}}`, `{"spec":{"jobTemplate":{"spec":{"template":{"metadata":{}}}}}}`} {
			if got := holds(t, e, decode(t, odd), nil, "jane"); got != (e.Name == manifests.AdviseNamespaceEntry) {
				t.Errorf("%s on %s: %t", e.Name, odd, got)
			}
		}
	}
}

// TestAdviseUpdates checks that the webhook is called for an update that changes something that Pillion reads, and for no
// other: controllers update workloads often.
func TestAdviseUpdates(t *testing.T) {
	all := forWorkloads(t)
	const old = `{"metadata":{"name":"web","generation":1,"labels":{"a":"b"},"annotations":{"c":"d"}},"spec":{"replicas":1,` +
		`"template":{"metadata":{"labels":{"pillion.dev/inject":"enabled"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}},` +
		`"jobTemplate":{"metadata":{"labels":{"e":"f"}}}},"status":{"replicas":1}}`
	for change, called := range map[[2]string]bool{
		{`"generation":1`, `"generation":2,"finalizers":["x"],"managedFields":[{"manager":"m"}]`}: false,
		{`"replicas":1,`, `"replicas":2,"paused":true,"suspend":true,`}:                           false,
		{`"status":{"replicas":1}`, `"status":{"replicas":2}`}:                                    false,
		{`"status":{"replicas":1}`, `"other":1.5`}:                                                false,
		{`"labels":{"a":"b"},`, ``}:                                                               true,
		{`"c":"d"`, `"c":"e"`}:                                                                    true,
		{`"image":"web:1"`, `"image":"web:2"`}:                                                    true,
		{`{"e":"f"}`, `null`}:                                                                     true,
		{`"enabled"`, `"enabled","g":"h"`}:                                                        true,
	} {
		text := strings.Replace(old, change[0], change[1], 1)
		if text == old {
			t.Fatal(change)
		}
		for _, e := range all {
			if got := holds(t, e, decode(t, text), decode(t, old), "jane"); got != called {
				t.Errorf("%s is called for %s: %t", e.Name, text, got)
			}
			if holds(t, e, decode(t, old), decode(t, old), "jane") {
				t.Errorf("%s is called if nothing changes", e.Name)
			}
		}
	}
}

// TestAdviseMeantOptIn checks which keys of pods make a workload worth a question in a namespace that has not opted in.
func TestAdviseMeantOptIn(t *testing.T) {
	for key, want := range map[string]bool{
		inject.LabelInject: true, inject.AnnotationUninject: true, "panda.io/inject": true, "pilion.dev/templates": true, "pillion.dev/injct": true, "pilion.dev/inject": true, "pillion.io/inject": true, "pillions.dev/inject": true,
		inject.AnnotationTemplates: false, inject.LabelExempt: false, "pilion.dev/other": false, "linkerd.io/inject": false, "sidecar.istio.io/inject": false,
		"agent.pillion.dev/level": false, "app.kubernetes.io/name": false, "app": false,
	} {
		for _, at := range []string{"labels", "annotations"} {
			object := decode(t, `{"metadata":{"name":"web"},"spec":{"template":{"metadata":{"`+at+`":{"`+key+`":"enabled"}}}}}`)
			if got := holds(t, forWorkloads(t)[1], object, nil, "jane"); got != want {
				t.Errorf("%s %s: %t", at, key, got)
			}
			optsIn := at == "labels" && key == inject.LabelInject
			if got := seemsToOptIn(t, object); got != (want && !optsIn) {
				t.Errorf("%s %s seems to opt in: %t", at, key, got)
			}
			for _, own := range []string{`"metadata":{"name":"web","` + at + `":{"` + key + `":"enabled"}},"spec":{"template":{}}`, `"metadata":{"name":"web"},"spec":{"jobTemplate":{"metadata":{"` + at + `":{"` + key + `":"enabled"}}}}`} {
				object := decode(t, "{"+own+"}")
				if got := holds(t, forWorkloads(t)[1], object, nil, "jane"); got != want {
					t.Errorf("%s %s of the workload: %t", at, key, got)
				}
				if got := seemsToOptIn(t, object); got != want {
					t.Errorf("%s %s of the workload seems to opt in: %t", at, key, got)
				}
			}
		}
	}
}

// seemsToOptIn is what Pillion thinks of the workload.
func seemsToOptIn(t *testing.T, object any) bool {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	n, err := jsontree.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	kind := "Deployment"
	if n.At("spec", "jobTemplate") != nil {
		kind = "CronJob"
	}
	path, _ := workloads.PodIn(map[string]string{"Deployment": "apps/v1", "CronJob": "batch/v1"}[kind], kind)
	return inject.SeemsToOptIn(n, path)
}

// TestAdviseMistakes checks which namespaces are worth a question: those with keys that may be meant for Pillion and are not right, if
// the request changes them.
func TestAdviseMistakes(t *testing.T) {
	_, all := loadAdvise(t)
	e := all[2]
	const none = `{"metadata":{"name":"shop"}}`
	for _, c := range []struct {
		metadata string
		want     bool
	}{
		{`"labels":{"pillion.dev/inject":"enabled"}`, false},
		{`"labels":{"pillion.dev/inject":"shadow","pillion.dev/rollout":"enabled","team":"a"}`, false},
		{`"labels":{"pillion.dev/inject":"true"}`, true},
		{`"labels":{"pillion.dev/rollout":"true"}`, true},
		{`"labels":{"pilion.dev/rollout":"enabled"}`, true},
		{`"labels":{"stack.pulumi.com/x":"y","platform.io/team":"a"}`, false},
		{`"annotations":{"agent.pilion.dev/level":"debug"}`, true},
		{`"labels":{"pillion.dev/injct":"enabled"}`, true},
		{`"labels":{"pilion.dev/inject":"enabled"}`, true},
		{`"labels":{"agent.pillion.dev/level":"debug"}`, true},
		{`"annotations":{"pillion.dev/inject":"enabled"}`, true},
		{`"annotations":{"agent.pillion.dev/level":"debug"}`, false},
		{`"annotations":{"linkerd.io/inject":"enabled"}`, false},
		{`"labels":{"kubernetes.io/metadata.name":"shop"},"annotations":{}`, false},
		{`"labels":null`, false},
	} {
		text := `{"metadata":{"name":"shop",` + c.metadata + `}}`
		if got := holds(t, e, decode(t, text), nil, "jane"); got != c.want {
			t.Errorf("created with %s: %t", c.metadata, got)
		}
		if got := holds(t, e, decode(t, text), decode(t, none), "jane"); got != c.want {
			t.Errorf("changed to %s: %t", c.metadata, got)
		}
		if holds(t, e, decode(t, text), decode(t, text), "jane") {
			t.Errorf("not changed from %s, and called", c.metadata)
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

// holds reports whether all matchConditions of an entry do, for a request of a user. If old is nil, it creates the object.
func holds(t *testing.T, e entry, object, old any, user string) bool {
	t.Helper()
	evaluation := newEvaluation(t, map[string]any{"object": object, "oldObject": old, "request": map[string]any{"userInfo": map[string]any{"username": user}}})
	for _, c := range e.MatchConditions {
		out, err := evaluation.value(c.Expression)
		if err != nil {
			t.Fatalf("%s: %s on %v: %v", e.Name, c.Name, object, err)
		}
		if out != types.True {
			return false
		}
	}
	return true
}

// TestAdviseDefault checks that the base has the webhook, the flag where the component no-advise removes it, and the
// right to read what the flag needs.
func TestAdviseDefault(t *testing.T) {
	b := load(t)
	if args := b.deployment.Spec.Template.Spec.Containers[0].Args; args[1] != "--advise" {
		t.Errorf("the arguments are %q", args)
	}
	if k := readKustomization(t, adviseFolder); !slices.Equal(k.Resources, []string{"rbac.yaml", "validatingwebhookconfiguration.yaml"}) || len(k.Patches) > 0 {
		t.Errorf("the kustomization is %+v", k)
	}
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	decodeStrictly(t, filepath.Join(adviseFolder, "rbac.yaml"), &role, &binding)
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
