// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// rolloutPolicy is the policy of the component rollout, and what a denial by it says.
const (
	rolloutPolicy = "pillion-controller-rollout"
	onlyRollouts  = "ValidatingAdmissionPolicy 'pillion-controller-rollout' with binding 'pillion-controller-rollout' denied request"
)

// The namespaces of the test. All of them have the same objects.
const (
	rollingNamespace = "rolling"     // has the label
	plainNS          = "plain"       // has no label
	mistakenNS       = "mistaken"    // has another value of the label
	shadowNS         = "shadow"      // has the label, and Pillion injects nothing
	systemNS         = "kube-system" // has the label, by mistake
)

// stolen is a token of the controller's ServiceAccount, and what the administrator sees.
type stolen struct {
	*installed
	thief, admin dynamic.Interface
}

// controllerClient is a client with a token of the controller's ServiceAccount.
func controllerClient(t *testing.T, c *cluster.Cluster, namespace, name string) dynamic.Interface {
	t.Helper()
	token, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(testContext(t), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Config)
	config.BearerToken, config.QPS = token.Status.Token, -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestStolenControllerToken uses the token of the controller with the component rollout. It can change what a rollout
// changes, in namespaces with the label, and nothing else. The component's policy denies every other change of pods and
// workloads that the API server accepts from an administrator.
func TestStolenControllerToken(t *testing.T) {
	t.Parallel()
	i := (&installed{Cluster: newCluster(t), components: []string{"rollout"}}).install(t, "self-signed")
	i.waitForInjection(t)
	config := rest.CopyConfig(i.Config)
	config.QPS = -1
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &stolen{i, controllerClient(t, i.Cluster, pillionNamespace, "pillion-controller"), admin}
	s.prepare(t)
	s.waitForPolicy(t)
	t.Run("attacks", s.attacks)
	t.Run("rollout", s.rollout)
	t.Run("other namespaces", s.elsewhere)
	t.Run("managed fields", s.managedFields)
	t.Run("large pod", s.large)
	for _, of := range victims() {
		t.Run(of.String(), func(t *testing.T) { s.changesNothingElse(t, of) })
	}
	t.Run("with all rights", s.withAllRights)
	t.Run("in another namespace", s.renamed)
}

// victim is an object of a namespace.
type victim struct{ group, resource, name string }

func (v victim) String() string { return v.resource + "/" + v.name }

func (v victim) in(client dynamic.Interface, namespace string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: v.group, Version: "v1", Resource: v.resource}).Namespace(namespace)
}

func victims() []victim {
	return []victim{
		{"", "pods", "injected"},
		{"", "pods", "bare"},
		{"", "pods", "forged"},
		{"", "pods", "written"},
		{"apps", "deployments", "web"},
		{"apps", "statefulsets", "db"},
		{"apps", "daemonsets", "proxy"},
	}
}

func (s *stolen) prepare(t *testing.T) {
	t.Helper()
	const template = `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod:
    spec:
      initContainers: [{name: agent, image: "agent:1", restartPolicy: Always, resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {cpu: 20m, memory: 32Mi}}}]
`
	s.kubectl(t, template, "apply", "-f", "-")
	labels := map[string][]string{
		rollingNamespace: {"pillion.dev/rollout=enabled"}, plainNS: nil, mistakenNS: {"pillion.dev/rollout=true"},
		shadowNS: {"pillion.dev/rollout=enabled"}, systemNS: {"pillion.dev/rollout=enabled"},
	}
	for namespace, of := range labels {
		if namespace != systemNS {
			s.kubectl(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+", labels: {pillion.dev/inject: enabled}}\n", "apply", "-f", "-")
		}
		if err := s.WaitForPods(testContext(t), namespace); err != nil {
			t.Fatal(err)
		}
		if of != nil {
			s.kubectl(t, "", append([]string{"label", "namespace", namespace}, of...)...)
		}
	}
	eventually(t, "pods get the sidecar", func(ctx context.Context) error {
		for range 4 * len(s.replicas) {
			pod, err := s.Client.CoreV1().Pods(rollingNamespace).Create(ctx, newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if len(pod.Spec.InitContainers) != 2 {
				return errors.New("it does not")
			}
		}
		return nil
	})
	for namespace := range labels {
		s.kubectl(t, victimsOf(namespace), "apply", "-n", namespace, "-f", "-")
		s.kubectl(t, "", "annotate", "pod", "forged", "-n", namespace, "agent.pillion.dev/injected=0123456789ab")
	}
	s.kubectl(t, "", "label", "namespace", shadowNS, "--overwrite", "pillion.dev/inject=shadow")
}

// victimsOf are the objects of a namespace: a pod that Pillion injects, one that opts out, one that opts out and gets a
// record by hand, one whose author wrote the sidecar and the record, and workloads. Pods of system namespaces have no sidecar.
func victimsOf(namespace string) string {
	const resources = "resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {cpu: 20m, memory: 32Mi}}"
	sidecar := `initContainers: [{name: agent, image: "agent:1", restartPolicy: Always, ` + resources + `}], `
	injected := ""
	if namespace == systemNS {
		injected = sidecar
	}
	const app = `containers: [{name: app, image: "app:1", ` + resources + `}]`
	const record = `annotations: {agent.pillion.dev/injected: 0123456789ab}`
	pod := func(name, metadata, more string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + metadata + "}\nspec: {terminationGracePeriodSeconds: 5, activeDeadlineSeconds: 100000, " + more + app + "}\n---\n"
	}
	const workload = "metadata: {name: %s, labels: {a: b}, annotations: {c: d}}\nspec:\n  selector: {matchLabels: {app: %[1]s}}\n" +
		"  template: {metadata: {labels: {app: %[1]s}, annotations: {e: f, kubectl.kubernetes.io/restartedAt: '2020-01-01T00:00:00Z'}}, spec: {" + app + "}}\n---\n"
	return pod("injected", "", injected) + pod("bare", ", labels: {pillion.dev/inject: disabled}", "") + pod("forged", ", labels: {pillion.dev/inject: disabled}", sidecar) +
		pod("written", ", labels: {pillion.dev/inject: disabled}, "+record, sidecar) +
		"apiVersion: apps/v1\nkind: Deployment\n" + fmt.Sprintf(workload, "web") + "apiVersion: apps/v1\nkind: StatefulSet\n" + fmt.Sprintf(workload, "db") +
		"apiVersion: apps/v1\nkind: DaemonSet\n" + fmt.Sprintf(workload, "proxy")
}

// waitForPolicy waits until the API server enforces the policy. It knows a new policy only a moment later.
func (s *stolen) waitForPolicy(t *testing.T) {
	t.Helper()
	eventually(t, "the policy is in force", func(ctx context.Context) error {
		_, err := victims()[4].in(s.thief, rollingNamespace).Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), dryPatch())
		if err == nil || !strings.Contains(err.Error(), onlyRollouts) {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}

// try patches or evicts an object with the token.
func (s *stolen) try(t *testing.T, namespace string, of victim, patch string, subresources ...string) error {
	t.Helper()
	kind := types.JSONPatchType
	if strings.HasPrefix(patch, "{") {
		kind = types.MergePatchType
	}
	_, err := of.in(s.thief, namespace).Patch(testContext(t), of.name, kind, []byte(patch), dryPatch(), subresources...)
	return err
}

// wantOnlyRollouts checks that the policy has denied a request, not RBAC or validation.
func wantOnlyRollouts(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), onlyRollouts) || !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// Changes of a rollout.
const (
	newImage    = `[{"op": "replace", "path": "/spec/initContainers/0/image", "value": "agent:2"}]`
	newMemory   = `[{"op": "replace", "path": "/spec/initContainers/0/resources/limits/memory", "value": "64Mi"}]`
	newRecord   = `{"metadata": {"annotations": {"agent.pillion.dev/injected": "ba9876543210"}}}`
	newRestart  = `{"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}}}`
	newAppImage = `[{"op": "replace", "path": "/spec/containers/0/image", "value": "evil:1"}]`
)

// attacks are those of a client that wants the cluster.
func (s *stolen) attacks(t *testing.T) {
	pods, deployments, daemonSets := victims()[0], victims()[4], victims()[6]
	for _, namespace := range []string{systemNS, rollingNamespace} {
		wantOnlyRollouts(t, "an image of a workload in "+namespace, s.try(t, namespace, daemonSets, `[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}]`))
		wantOnlyRollouts(t, "a privileged container in "+namespace, s.try(t, namespace, deployments,
			`{"spec": {"template": {"spec": {"serviceAccountName": "other", "hostPID": true, "containers": [{"name": "app", "image": "app:1", "securityContext": {"privileged": true}}]}}}}`))
	}
	wantOnlyRollouts(t, "an eviction", s.evict(t, systemNS, "injected", map[string]any{"preconditions": map[string]any{"uid": s.uid(t, systemNS, "injected")}}))
	wantOnlyRollouts(t, "the app of an injected pod", s.try(t, rollingNamespace, pods, newAppImage))
	wantOnlyRollouts(t, "the app of an injected pod, and what a rollout changes", s.try(t, rollingNamespace, pods, newImage[:len(newImage)-1]+", "+newAppImage[1:]))
	forge := `{"metadata": {"annotations": {"agent.pillion.dev/injected": "0123456789ab"}}}`
	wantOnlyRollouts(t, "a first record", s.try(t, rollingNamespace, victim{"", "pods", "bare"}, forge))
	wantOnlyRollouts(t, "a first record together with an image", s.try(t, rollingNamespace, victim{"", "pods", "bare"},
		`[{"op": "add", "path": "/metadata/annotations", "value": {"agent.pillion.dev/injected": "0123456789ab"}}, `+newAppImage[1:]))
	for _, name := range []string{"forged", "written"} {
		of := victim{"", "pods", name}
		wantOnlyRollouts(t, "the sidecar that the author of the pod "+name+" wrote", s.try(t, rollingNamespace, of, newImage))
		wantOnlyRollouts(t, "its resources", s.try(t, rollingNamespace, of, newMemory, "resize"))
	}
	wantOnlyRollouts(t, "a record of another kind", s.try(t, rollingNamespace, pods, `{"metadata": {"annotations": {"agent.pillion.dev/injected": "anything"}}}`))
	wantOnlyRollouts(t, "an annotation", s.try(t, rollingNamespace, pods, `{"metadata": {"annotations": {"agent.pillion.dev/customize": "true"}}}`))
	wantOnlyRollouts(t, "the resources of an app", s.try(t, rollingNamespace, pods, `[{"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "64Mi"}]`, "resize"))
	for _, value := range []string{`""`, `"now"`, `"2026-01-01T00:00:00Z\nx"`, "null"} {
		wantOnlyRollouts(t, "the time of a restart "+value, s.try(t, rollingNamespace, deployments, `{"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": `+value+`}}}}}`))
	}
	uid := s.uid(t, rollingNamespace, "injected")
	for what, options := range map[string]map[string]any{
		"no options": nil, "no UID": {"preconditions": map[string]any{}},
		"at once": {"preconditions": map[string]any{"uid": uid}, "gracePeriodSeconds": int64(0)},
		"orphans": {"preconditions": map[string]any{"uid": uid}, "propagationPolicy": "Orphan"},
	} {
		wantOnlyRollouts(t, "an eviction with "+what, s.evict(t, rollingNamespace, "injected", options))
	}
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "injected"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "evil:1"}}},
	}}
	_, err := pods.in(s.thief, rollingNamespace).Apply(testContext(t), "injected", applied, metav1.ApplyOptions{FieldManager: "kubectl-client-side-apply", Force: true, DryRun: []string{metav1.DryRunAll}})
	wantOnlyRollouts(t, "an image by server-side apply", err)
}

func (s *stolen) uid(t *testing.T, namespace, pod string) string {
	t.Helper()
	object, err := victims()[0].in(s.admin, namespace).Get(testContext(t), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(object.GetUID())
}

// evict evicts a pod in a dry run.
func (s *stolen) evict(t *testing.T, namespace, pod string, options map[string]any) error {
	t.Helper()
	eviction := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": pod, "namespace": namespace}}}
	if options != nil {
		eviction.Object["deleteOptions"] = options
	}
	_, err := victims()[0].in(s.thief, namespace).Create(testContext(t), eviction, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, "eviction")
	return err
}

// steps are the changes of a rollout in a namespace.
func (s *stolen) steps(t *testing.T, namespace string) map[string]error {
	t.Helper()
	pod := victims()[0]
	done := map[string]error{
		"image": s.try(t, namespace, pod, newImage), "resources": s.try(t, namespace, pod, newMemory, "resize"), "record": s.try(t, namespace, pod, newRecord),
		"record of a canary": s.try(t, namespace, pod, `{"metadata": {"annotations": {"next.pillion.dev/injected": "ba9876543210"}}}`),
		"no record":          s.try(t, namespace, pod, `{"metadata": {"annotations": {"agent.pillion.dev/injected": null}}}`),
		"eviction":           s.evict(t, namespace, pod.name, map[string]any{"preconditions": map[string]any{"uid": s.uid(t, namespace, pod.name)}}),
	}
	for _, of := range victims()[4:] {
		done["restart of "+of.resource] = s.try(t, namespace, of, newRestart)
	}
	return done
}

// rollout checks that each step of a rollout is allowed.
func (s *stolen) rollout(t *testing.T) {
	for what, err := range s.steps(t, rollingNamespace) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// elsewhere checks that the same steps are denied in other namespaces.
func (s *stolen) elsewhere(t *testing.T) {
	for _, namespace := range []string{plainNS, mistakenNS, shadowNS, systemNS} {
		for what, err := range s.steps(t, namespace) {
			wantOnlyRollouts(t, what+" in "+namespace, err)
		}
	}
}

// managedFields checks that managedFields must not change. Clients can write there who has written a container.
func (s *stolen) managedFields(t *testing.T) {
	pod := victims()[0]
	before, err := pod.in(s.admin, rollingNamespace).Get(testContext(t), pod.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"[]", "[{}]", `[{"manager": "x", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:initContainers": {"k:{\"name\":\"agent\"}": {".": {}, "f:image": {}}}}}}]`} {
		wantOnlyRollouts(t, "managedFields "+value, s.try(t, rollingNamespace, pod, `{"metadata": {"managedFields": `+value+`}}`))
	}
	entries := before.GetManagedFields()
	if len(entries) == 0 || !strings.Contains(string(entries[0].FieldsV1.GetRawBytes()), `k:{\"name\":\"app\"}`) || strings.Contains(string(entries[0].FieldsV1.GetRawBytes()), `k:{\"name\":\"agent\"}`) {
		t.Fatalf("the creator of the pod manages %v", entries)
	}
	// A pod whose managed fields an administrator has reset: so it is not known which containers its author wrote.
	s.kubectl(t, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reset"}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}`, "create", "-n", rollingNamespace, "-f", "-")
	of := victim{"", "pods", "reset"}
	if _, err := of.in(s.admin, rollingNamespace).Patch(testContext(t), of.name, types.MergePatchType, []byte(`{"metadata": {"managedFields": [{}]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wantOnlyRollouts(t, "the app of a pod without managed fields", s.try(t, rollingNamespace, of, newAppImage))
	wantOnlyRollouts(t, "the sidecar of a pod without managed fields", s.try(t, rollingNamespace, of, newImage))
}

// large checks that the policy works for a pod with many containers, too, within the API server's limit of the cost of expressions.
func (s *stolen) large(t *testing.T) {
	const containers, variables = 100, 40
	pod := newPod("large")
	for i := range containers {
		c := corev1.Container{Name: fmt.Sprintf("app-%d", i), Image: "app:1"}
		for k := range variables {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", k), Value: strings.Repeat("x", 20)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	created, err := s.Client.CoreV1().Pods(rollingNamespace).Create(testContext(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	of := victim{"", "pods", pod.Name}
	at := slices.IndexFunc(created.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "agent" })
	if err := s.try(t, rollingNamespace, of, fmt.Sprintf(`[{"op": "replace", "path": "/spec/initContainers/%d/image", "value": "agent:2"}]`, at)); err != nil {
		t.Error(err)
	}
	wantOnlyRollouts(t, "the last app of a large pod", s.try(t, rollingNamespace, of, fmt.Sprintf(`[{"op": "replace", "path": "/spec/containers/%d/image", "value": "evil:1"}]`, len(created.Spec.Containers)-1)))
}

// allowedPaths are those that a rollout changes.
func allowedPaths(of victim) []string {
	switch {
	case of.group == "apps":
		return []string{"/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt"}
	case of.name == "injected":
		return []string{"/spec/initContainers/0/image", "/metadata/annotations/agent.pillion.dev~1injected"}
	case of.name == "bare":
		return nil
	}
	return []string{"/metadata/annotations/agent.pillion.dev~1injected"}
}

// changesNothingElse tries to change each field there is, and to add and remove what there can be, in the namespace in
// which rollouts are allowed.
func (s *stolen) changesNothingElse(t *testing.T, of victim) {
	before, err := of.in(s.admin, rollingNamespace).Get(testContext(t), of.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	denied, allowed := 0, map[string]bool{}
	for _, change := range victimChanges(before.Object) {
		patch := asJSON(t, []any{change})
		after, err := of.in(s.admin, rollingNamespace).Patch(testContext(t), of.name, types.JSONPatchType, patch, dryPatch())
		if err != nil || equality.Semantic.DeepEqual(comparable(after), comparable(before)) {
			continue // no change, or none that the API server accepts from any client
		}
		err = s.try(t, rollingNamespace, of, string(patch))
		if err == nil && slices.Contains(allowedPaths(of), change.Path) {
			allowed[change.Path] = true
			continue
		}
		wantOnlyRollouts(t, string(patch), err)
		denied++
	}
	t.Logf("%d changes were denied, and those of %v were not", denied, slices.Sorted(maps.Keys(allowed)))
	if least := map[string]int{"": 8, "apps": 100}[of.group]; denied < least || len(allowed) != len(allowedPaths(of)) {
		t.Errorf("%d changes were denied, and %v were allowed", denied, allowed)
	}
}

// victimChanges are changes of everything in an object: many of them are valid.
func victimChanges(object map[string]any) (all []change) {
	owner := map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}
	for path, value := range map[string]any{
		"/metadata/labels": map[string]any{"x": "y"}, "/metadata/annotations": map[string]any{"x": "y"}, "/metadata/finalizers": []any{"example.com/x"},
		"/metadata/ownerReferences": []any{owner}, "/metadata/labels/x": "y", "/metadata/annotations/x": "y", "/metadata/annotations/x.pillion.dev~1injected": "x",
		"/spec/tolerations": []any{map[string]any{"operator": "Exists"}}, "/spec/activeDeadlineSeconds": int64(10), "/spec/terminationGracePeriodSeconds": int64(1),
		"/spec/tolerations/-": map[string]any{"operator": "Exists"}, "/spec/replicas": int64(9), "/spec/paused": true,
		"/spec/template/spec/hostPID": true, "/spec/template/spec/hostNetwork": true, "/spec/template/spec/serviceAccountName": "other",
		"/spec/template/spec/containers/0/securityContext": map[string]any{"privileged": true}, "/spec/template/spec/containers/0/command": []any{"sh"},
		"/spec/template/spec/containers/-":       map[string]any{"name": "more", "image": "more:1"},
		"/spec/template/spec/initContainers":     []any{map[string]any{"name": "more", "image": "more:1"}},
		"/spec/template/spec/volumes":            []any{map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}}},
		"/spec/template/metadata/annotations/x":  "y",
		"/spec/template/metadata/labels/x":       "y",
		"/spec/template/metadata/annotations":    map[string]any{"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"},
		"/spec/template/spec/containers/0/env":   []any{map[string]any{"name": "X", "value": "y"}},
		"/spec/template/spec/nodeName":           "node",
		"/spec/template/spec/containers/0/image": "evil:1",
	} {
		all = append(all, change{Op: "add", Path: path, Value: value})
	}
	metadata, _ := object["metadata"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !slices.Contains([]string{"managedFields", "resourceVersion", "generation"}, key) {
			all = append(all, changesAt("/metadata/"+key, metadata[key], []any{"ba9876543210"})...)
		}
	}
	others := append(values(), "2026-01-01T00:00:00Z", "OnDelete", "RollingUpdate", "Recreate", "OnFailure", "Default", "ClusterFirst", "TCP", "1", "Delete", "Parallel", "OrderedReady", "File", "IfNotPresent", "Always")
	return append(all, changesAt("/spec", object["spec"], others)...)
}

// withAllRights checks that the policy alone is enough, whatever rights the ServiceAccount has.
func (s *stolen) withAllRights(t *testing.T) {
	_, err := s.Client.RbacV1().ClusterRoleBindings().Create(testContext(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "pillion-controller", Namespace: pillionNamespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dry := []string{metav1.DryRunAll}
	eventually(t, "the rights count", func(ctx context.Context) error {
		_, err := s.thief.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(rollingNamespace).Create(ctx,
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}}}, metav1.CreateOptions{DryRun: dry})
		return err
	})
	ctx := testContext(t)
	for _, of := range victims() {
		now, err := of.in(s.admin, rollingNamespace).Get(ctx, of.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now.SetAnnotations(map[string]string{"x": "y"})
		thief := of.in(s.thief, rollingNamespace)
		_, err = thief.Update(ctx, now, metav1.UpdateOptions{DryRun: dry})
		wantOnlyRollouts(t, of.String()+": update", err)
		wantOnlyRollouts(t, of.String()+": delete", thief.Delete(ctx, of.name, metav1.DeleteOptions{DryRun: dry}))
		wantOnlyRollouts(t, of.String()+": delete all", thief.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{}))
		now.SetName("")
		now.SetGenerateName("another-")
		now.SetResourceVersion("")
		now.SetUID("")
		_, err = thief.Create(ctx, now, metav1.CreateOptions{DryRun: dry})
		wantOnlyRollouts(t, of.String()+": create", err)
	}
	wantOnlyRollouts(t, "scale", s.try(t, rollingNamespace, victims()[4], `{"spec": {"replicas": 9}}`, "scale"))
	wantOnlyRollouts(t, "a debug container", s.try(t, rollingNamespace, victims()[0], `{"spec": {"ephemeralContainers": [{"name": "debug", "image": "evil:1"}]}}`, "ephemeralcontainers"))
	bind := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Binding", "metadata": map[string]any{"name": "injected"}, "target": map[string]any{"kind": "Node", "name": "x"}}}
	_, err = victims()[0].in(s.thief, rollingNamespace).Create(ctx, bind, metav1.CreateOptions{DryRun: dry}, "binding")
	wantOnlyRollouts(t, "a binding", err)
	for _, v := range []string{"batch/v1 jobs Job", "batch/v1 cronjobs CronJob", "apps/v1 replicasets ReplicaSet", "apps/v1 controllerrevisions ControllerRevision", "v1 replicationcontrollers ReplicationController", "v1 podtemplates PodTemplate"} {
		part := strings.Fields(v)
		gv, err := schema.ParseGroupVersion(part[0])
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": part[0], "kind": part[2], "metadata": map[string]any{"name": "x"}, "revision": int64(1), "data": map[string]any{}}}
		pod := map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "x"}}, "spec": map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "app", "image": "evil:1"}}}}
		if part[2] != "Job" && part[2] != "CronJob" {
			pod["spec"].(map[string]any)["restartPolicy"] = "Always"
		}
		spec := map[string]any{"template": pod}
		switch part[2] {
		case "CronJob":
			spec = map[string]any{"schedule": "* * * * *", "jobTemplate": map[string]any{"spec": spec}}
		case "ReplicaSet":
			spec["selector"] = map[string]any{"matchLabels": map[string]any{"app": "x"}}
		case "PodTemplate":
			o.Object["template"] = pod
		}
		if part[2] != "PodTemplate" && part[2] != "ControllerRevision" {
			o.Object["spec"] = spec
		}
		_, err = s.thief.Resource(gv.WithResource(part[1])).Namespace(rollingNamespace).Create(ctx, o, metav1.CreateOptions{DryRun: dry})
		wantOnlyRollouts(t, "a "+part[2], err)
	}
	err = s.thiefExec(t)
	wantOnlyRollouts(t, "exec", err)
}

// thiefExec starts a program in a container.
func (s *stolen) thiefExec(t *testing.T) error {
	t.Helper()
	token, err := s.Client.CoreV1().ServiceAccounts(pillionNamespace).CreateToken(testContext(t), "pillion-controller", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(s.Config)
	config.BearerToken = token.Status.Token
	config.APIPath, config.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Post().Namespace(rollingNamespace).Resource("pods").Name("injected").SubResource("exec").Param("command", "id").Param("container", "app").Do(testContext(t)).Error()
}

// renamed checks that the policy is for the right ServiceAccount if a kustomization gives it another namespace and a prefix.
func (s *stolen) renamed(t *testing.T) {
	for _, name := range []string{"pillion-controller", "team-pillion-controller", "pillion-controller-2"} {
		s.kubectl(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: sidecars, labels: {pillion.dev/rollout: enabled}}\n", "apply", "-f", "-")
		s.kubectl(t, "", "create", "serviceaccount", name, "-n", "sidecars")
		s.kubectl(t, "", "create", "clusterrolebinding", "all-for-"+name, "--clusterrole=cluster-admin", "--serviceaccount=sidecars:"+name)
		o := &stolen{s.installed, controllerClient(t, s.Cluster, "sidecars", name), s.admin}
		o.waitForPolicy(t)
		o.rollout(t)
		own := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "evil:1"}}}}}
		_, err := victims()[0].in(o.thief, "sidecars").Create(testContext(t), own, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		wantOnlyRollouts(t, "a pod in its own namespace", err)
	}
	s.kubectl(t, "", "create", "serviceaccount", "mypillion-controllers", "-n", "sidecars")
	s.kubectl(t, "", "create", "clusterrolebinding", "other", "--clusterrole=cluster-admin", "--serviceaccount=sidecars:mypillion-controllers")
	other := controllerClient(t, s.Cluster, "sidecars", "mypillion-controllers")
	eventually(t, "another ServiceAccount is not limited", func(ctx context.Context) error {
		_, err := victims()[4].in(other, plainNS).Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), dryPatch())
		return err
	})
}
