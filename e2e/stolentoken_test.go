// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// bundlePolicy is the policy of the self-signed overlay, and what a denial by it says.
const (
	bundlePolicy = "pillion-certs"
	onlyBundles  = "ValidatingAdmissionPolicy 'pillion-certs' with binding 'pillion-certs' denied request"
)

// tokenClient returns a client with a token of a ServiceAccount, and with nothing else.
func tokenClient(t *testing.T, c *cluster.Cluster, namespace, account string) dynamic.Interface {
	t.Helper()
	token, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(testContext(t), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken = token.Status.Token
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// theft has a client with the token, and the administrator.
type theft struct {
	thief, admin dynamic.Interface
}

// configuration is one webhook configuration, as both see it.
type configuration struct{ kind, name string }

func (c configuration) of(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(strings.ToLower(c.kind) + "s"))
}

func (c configuration) String() string { return c.kind + "/" + c.name }

func shippedConfigurations() []configuration {
	return []configuration{
		{"MutatingWebhookConfiguration", "pillion"},
		{"ValidatingWebhookConfiguration", "pillion"},
		{"ValidatingWebhookConfiguration", adviseConfiguration},
	}
}

// TestStolenToken uses the token of the self-signed overlay. It can change the caBundle and nothing
// else of a webhook configuration. The overlay's policy denies every other change that the API
// server accepts from an administrator.
func TestStolenToken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	i := &installed{Cluster: c}
	i.apply(t, "self-signed")
	admin, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	s := theft{tokenClient(t, c, pillionNamespace, "pillion"), admin}
	s.waitForPolicy(t)
	for _, which := range shippedConfigurations() {
		t.Run(which.String(), func(t *testing.T) {
			s.mayChangeBundles(t, which)
			s.mayChangeNothingElse(t, which)
		})
	}
	t.Run("with all rights", func(t *testing.T) { s.withAllRights(t, c) })
	t.Run("no warnings of the type checker", func(t *testing.T) { wellTyped(t, c) })
	t.Run("in another namespace", func(t *testing.T) { elsewhere(t, c, admin) })
}

// waitForPolicy waits until the API server enforces the policy. It knows a new policy only a moment later.
func (s theft) waitForPolicy(t *testing.T) {
	t.Helper()
	eventually(t, "the policy is in force", func(ctx context.Context) error {
		_, err := shippedConfigurations()[0].of(s.thief).Patch(ctx, "pillion", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), dryPatch())
		if err == nil || !strings.Contains(err.Error(), onlyBundles) {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}

func dryPatch() metav1.PatchOptions { return metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}} }

// mayChangeBundles checks that the thief may change the CA bundles of a configuration, by server-side apply, as Pillion does, and in other
// ways.
func (s theft) mayChangeBundles(t *testing.T, which configuration) {
	t.Helper()
	ctx := testContext(t)
	before, err := which.of(s.admin).Get(ctx, which.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var webhooks []any
	var patch []map[string]any
	for k, w := range listOf(before.Object, "webhooks") {
		webhooks = append(webhooks, map[string]any{"name": w["name"], "clientConfig": map[string]any{"caBundle": "Cg=="}})
		patch = append(patch, map[string]any{"op": "add", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", k), "value": "Cgo="})
	}
	apply := &unstructured.Unstructured{Object: map[string]any{"webhooks": webhooks}}
	apply.SetGroupVersionKind(before.GroupVersionKind())
	apply.SetName(which.name)
	if _, err := which.of(s.thief).Apply(ctx, which.name, apply, metav1.ApplyOptions{FieldManager: "pillion-certs", Force: true}); err != nil {
		t.Errorf("applying caBundles: %v", err)
	}
	if _, err := which.of(s.thief).Patch(ctx, which.name, types.JSONPatchType, asJSON(t, patch), metav1.PatchOptions{}); err != nil {
		t.Errorf("patching caBundles: %v", err)
	}
	for k := range patch {
		patch[k]["op"] = "remove"
	}
	if _, err := which.of(s.thief).Patch(ctx, which.name, types.JSONPatchType, asJSON(t, patch), dryPatch()); err != nil {
		t.Errorf("removing caBundles: %v", err)
	}
}

// mayChangeNothingElse tries to change each field there is, and to add and remove what there can be.
func (s theft) mayChangeNothingElse(t *testing.T, which configuration) {
	t.Helper()
	before, err := which.of(s.admin).Get(testContext(t), which.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leaves, taken := map[string]bool{}, map[string]bool{}
	denied := 0
	for _, change := range changesOf(before.Object) {
		patch := asJSON(t, []any{change})
		if change.leaf {
			leaves[change.Path] = true
		}
		if change.leaf && taken[change.Path] {
			continue // another value of it, one is enough
		}
		after, err := which.of(s.admin).Patch(testContext(t), which.name, types.JSONPatchType, patch, dryPatch())
		if err != nil || equality.Semantic.DeepEqual(comparable(after), comparable(before)) {
			continue // no change, or none that the API server accepts from any client
		}
		taken[change.Path] = true
		_, err = which.of(s.thief).Patch(testContext(t), which.name, types.JSONPatchType, patch, dryPatch())
		if allowed := strings.HasSuffix(change.Path, "/clientConfig/caBundle"); allowed != (err == nil) || !allowed && !strings.Contains(err.Error(), onlyBundles) {
			t.Errorf("%s: %v", patch, err)
		}
		denied++
	}
	t.Logf("%d changes of %d places", denied, len(taken))
	for _, path := range slices.Sorted(maps.Keys(leaves)) {
		// What identifies the object, and what is the API server's own, no one can change.
		if !taken[path] && !slices.Contains([]string{"/apiVersion", "/kind", "/metadata/name", "/metadata/uid", "/metadata/creationTimestamp"}, path) {
			t.Errorf("no change of %s was tried that an administrator may make", path)
		}
	}
}

// change is an operation of a JSON patch.
type change struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`

	leaf bool // another value for one
}

// changesOf are changes of everything in a webhook configuration: most of them are valid.
func changesOf(object map[string]any) (all []change) {
	owner := map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}
	for path, value := range map[string]any{
		"/metadata/labels/x": "y", "/metadata/annotations": map[string]any{"x": "y"}, "/metadata/finalizers": []any{"example.com/x"},
		"/metadata/ownerReferences": []any{owner}, "/metadata/labels": map[string]any{}, "/webhooks": []any{},
	} {
		all = append(all, change{Op: "add", Path: path, Value: value})
	}
	webhooks, _ := object["webhooks"].([]any)
	reversed := slices.Clone(webhooks)
	slices.Reverse(reversed)
	all = append(all, change{Op: "replace", Path: "/webhooks", Value: reversed}, change{Op: "remove", Path: "/webhooks/0"})
	more := map[string]any{}
	maps.Copy(more, webhooks[0].(map[string]any))
	more["name"] = "more.pillion.dev"
	all = append(all, change{Op: "add", Path: "/webhooks/-", Value: more}, change{Op: "add", Path: "/webhooks/0", Value: more})
	for k, w := range webhooks {
		at := fmt.Sprintf("/webhooks/%d", k)
		url := map[string]any{"url": "https://example.com/x"}
		condition := map[string]any{"name": "more", "expression": "true"}
		all = append(all, change{Op: "replace", Path: at + "/clientConfig", Value: url}, change{Op: "add", Path: at + "/matchConditions/-", Value: condition})
		all = append(all, changesAt(at, w, values())...)
	}
	for _, key := range []string{"apiVersion", "kind"} {
		all = append(all, change{Op: "replace", Path: "/" + key, Value: "x"})
	}
	metadata, _ := object["metadata"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !slices.Contains([]string{"managedFields", "resourceVersion", "generation"}, key) {
			all = append(all, changesAt("/metadata/"+key, metadata[key], nil)...)
		}
	}
	return all
}

// changesAt are removals of a value and of all within it, and other values for each leaf.
func changesAt(path string, value any, others []any) (all []change) {
	if !strings.HasSuffix(path, "/name") || strings.Count(path, "/") > 3 {
		all = append(all, change{Op: "remove", Path: path})
	}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, changesAt(path+"/"+strings.ReplaceAll(key, "/", "~1"), v[key], others)...)
		}
	case []any:
		for k, item := range v {
			all = append(all, changesAt(fmt.Sprintf("%s/%d", path, k), item, others)...)
		}
	case string:
		for _, other := range append([]any{v + "x", "x." + v}, others...) {
			all = append(all, change{"replace", path, other, true})
		}
	case int64:
		all = append(all, change{"replace", path, v + 1, true})
	}
	return all
}

// values are strings that are valid in one place or another.
func values() []any {
	return []any{
		"Fail", "Ignore", "Exact", "Equivalent", "None", "NoneOnDryRun", "Never", "IfNeeded", "*", "Cluster", "UPDATE", "Exists",
		"In", "NotIn", "v1beta1", "x", "Cgo=", "Cg==", "true", "/x",
	}
}

// comparable is what of a configuration is the user's to say.
func comparable(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o.Object
}

func listOf(object map[string]any, field string) (all []map[string]any) {
	list, _ := object[field].([]any)
	for _, item := range list {
		all = append(all, item.(map[string]any))
	}
	return all
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// withAllRights checks that the policy alone is enough, whatever rights the ServiceAccount has.
func (s theft) withAllRights(t *testing.T, c *cluster.Cluster) {
	_, err := c.Client.RbacV1().ClusterRoleBindings().Create(testContext(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "pillion", Namespace: pillionNamespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	which := shippedConfigurations()[0]
	thief := which.of(s.thief)
	var now *unstructured.Unstructured
	eventually(t, "the rights count", func(ctx context.Context) error {
		now, err = thief.Get(ctx, which.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = thief.Update(ctx, now, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	now.SetName("another")
	now.SetResourceVersion("")
	now.SetUID("")
	ctx, denied := testContext(t), map[string]error{}
	_, denied["create"] = thief.Create(ctx, now, metav1.CreateOptions{})
	_, denied["create by applying"] = thief.Patch(ctx, "another", types.ApplyPatchType,
		asJSON(t, map[string]any{"apiVersion": now.GetAPIVersion(), "kind": now.GetKind(), "metadata": map[string]any{"name": "another"}}), metav1.PatchOptions{FieldManager: "pillion-certs"})
	denied["delete"] = thief.Delete(ctx, which.name, metav1.DeleteOptions{})
	denied["delete all"] = thief.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	now, err = thief.Get(ctx, which.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now.SetAnnotations(map[string]string{"x": "y"})
	_, denied["update"] = thief.Update(ctx, now, metav1.UpdateOptions{})
	for what, err := range denied {
		if err == nil || !strings.Contains(err.Error(), onlyBundles) || !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// wellTyped checks that the API server's own check of the policy's expressions gives no warning.
func wellTyped(t *testing.T, c *cluster.Cluster) {
	needsControllerManager(t, checksTypes)
	eventually(t, "the policy is checked", func(ctx context.Context) error {
		policy, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, bundlePolicy, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
			return errors.New("not yet")
		}
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s", w.FieldRef, w.Warning)
		}
		return nil
	})
}

// elsewhere checks that the policy is for the ServiceAccount in another namespace if a kustomization moves everything to that namespace.
func elsewhere(t *testing.T, c *cluster.Cluster, admin dynamic.Interface) {
	dir := kustomization(t, "overlays/self-signed")
	path := filepath.Join(dir, "kustomization.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, "namespace: sidecars\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunKubectl(testContext(t), nil, "apply", "--server-side", "-k", dir); err != nil {
		t.Fatal(err)
	}
	s := theft{tokenClient(t, c, "sidecars", "pillion"), admin}
	s.waitForPolicy(t)
	for _, which := range shippedConfigurations() {
		s.mayChangeBundles(t, which)
	}
}
