// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/manifests"
)

const (
	systemPath        = "/api/v1/namespaces/pillion-system/"
	controllerPath    = "/apis/apps/v1/namespaces/pillion-system/deployments/pillion-controller"
	kindsPath         = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	reviewsPath       = "/apis/authorization.k8s.io/v1/"
	configsPath       = "/apis/admissionregistration.k8s.io/v1/"
	limitsPath        = configsPath + "validatingadmissionpolicies/"
	limitBindingsPath = configsPath + "validatingadmissionpolicybindings/"
	servedPath        = "/apis/pillion.dev/v1alpha1"
	agentsPath        = servedPath + "/clustersidecartemplates"
)

// policyBinding is the binding of a policy, with an action.
func policyBinding(name, action string) map[string]any {
	binding := thing("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", name, nil)
	binding["spec"] = map[string]any{"policyName": name, "validationActions": []any{action}}
	return binding
}

// review answers that all rights are there, apart from those for the denied resources. Every user may
// read one Secret at most, and create no pods.
func review(denied ...string) clitest.Answer {
	return func(r *http.Request) any {
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		spec, _ := asked["spec"].(map[string]any)
		of, _ := spec["resourceAttributes"].(map[string]any)
		allowed := of["resource"] != "pods" || of["verb"] != "create"
		allowed = allowed && (of["resource"] != "secrets" || of["name"] != nil)
		for _, resource := range denied {
			allowed = allowed && fmt.Sprintf("%v %v", spec["user"], of["resource"]) != resource && fmt.Sprint(of["resource"]) != resource
		}
		asked["status"] = map[string]any{"allowed": allowed}
		return asked
	}
}

// create answers with the pod when it is created, with the annotations and without the fields.
func create(annotations map[string]any, without ...string) clitest.Answer {
	return func(r *http.Request) any {
		var pod map[string]any
		_ = json.NewDecoder(r.Body).Decode(&pod)
		if r.URL.Query().Get("dryRun") != "All" {
			return metav1.Status{Message: "this is not a dry run"}
		}
		pod["metadata"].(map[string]any)["annotations"] = annotations
		spec := pod["spec"].(map[string]any)
		for _, field := range without {
			for _, c := range spec["initContainers"].([]any) {
				delete(c.(map[string]any), field)
			}
		}
		return pod
	}
}

// deploymentOf is a Deployment of Pillion without a template, which the checks do not need.
func deploymentOf(wanted, ready int) map[string]any {
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": wanted},
		"status": map[string]any{"readyReplicas": ready, "updatedReplicas": wanted},
	}
}

// listOf is a list of objects with their kinds.
func listOf(kind string, items ...any) map[string]any {
	if items == nil {
		items = []any{}
	}
	return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{}, "items": items}
}

// newChecked is a cluster in which all is well, with one template, agent, that is a default.
func newChecked(t *testing.T) *certified {
	t.Helper()
	c := newCertified(t, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	established := map[string]any{"apiVersion": "v1", "kind": "CustomResourceDefinition", "status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}}
	agent := map[string]any{
		"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": "agent", "generation": 1},
		"spec":   map[string]any{"default": true, "pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"agent": "here"}}}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Valid", "observedGeneration": 1}}},
	}
	shop := thing("v1", "Namespace", "", "shop", map[string]any{"labels": map[string]any{"pillion.dev/inject": "enabled", "kubernetes.io/metadata.name": "shop"}})
	pod := func(name string) any {
		o := thing("v1", "Pod", "pillion-system", name, nil)
		o["status"] = map[string]any{"phase": "Running"}
		return o
	}
	maps.Copy(c.objectsAPI, map[string]any{
		"/version":     `{"gitVersion": "v1.36.2"}`,
		deploymentPath: deploymentOf(2, 2),
		controllerPath: deploymentOf(1, 1),
		kindsPath + "clustersidecartemplates.pillion.dev": established,
		kindsPath + "sidecartemplates.pillion.dev":        established,
		reviewsPath + "subjectaccessreviews":              review(),
		reviewsPath + "selfsubjectaccessreviews":          review(),
		systemPath + "pods":                               listOf("PodList", pod("pillion-a"), pod("pillion-b")),
		systemPath + "pods/pillion-a:8080/proxy/readyz":   "[+]templates ok: revision 0123456789ab, 1 in use\nready\n",
		systemPath + "pods/pillion-b:8080/proxy/readyz":   "[+]templates ok: revision 0123456789ab, 1 in use\nready\n",
		systemPath + "configmaps/pillion-templates":       corev1.ConfigMap{},
		agentsPath: listOf("ClusterSidecarTemplateList", agent),
		servedPath: metav1.APIResourceList{GroupVersion: "pillion.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "clustersidecartemplates"}, {Name: "sidecartemplates"}}},
		"/apis/pillion.dev/v1alpha1/sidecartemplates":   listOf("SidecarTemplateList"),
		"/api/v1/namespaces":                            listOf("NamespaceList", shop),
		"/api/v1/namespaces/shop":                       shop,
		"/api/v1/namespaces/shop/pods":                  create(map[string]any{"agent.pillion.dev/injected": "0123456789ab"}),
		"/api/v1/namespaces/default/pods":               create(nil),
		limitsPath + manifests.CertsPolicy:              thing("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", manifests.CertsPolicy, nil),
		limitBindingsPath + manifests.CertsPolicy:       policyBinding(manifests.CertsPolicy, "Deny"),
		limitsPath + manifests.RolloutPolicy:            thing("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", manifests.RolloutPolicy, nil),
		limitBindingsPath + manifests.RolloutPolicy:     policyBinding(manifests.RolloutPolicy, "Deny"),
		configsPath + "mutatingwebhookconfigurations":   listOf("MutatingWebhookConfigurationList", clitest.Named(c.objectsAPI[mutatingPath])),
		configsPath + "validatingwebhookconfigurations": listOf("ValidatingWebhookConfigurationList", clitest.Named(c.objectsAPI[validatingPath])),
	})
	return c
}

// empty makes it a cluster before the installation.
func (c *certified) empty() {
	for _, path := range []string{mutatingPath, validatingPath} {
		delete(c.objectsAPI, path)
	}
	c.objectsAPI[configsPath+"mutatingwebhookconfigurations"] = listOf("MutatingWebhookConfigurationList")
	c.objectsAPI[configsPath+"validatingwebhookconfigurations"] = listOf("ValidatingWebhookConfigurationList")
}

// TestCheckAlways breaks each answer of the cluster in turn. Check still prints a whole report, in which nothing fails only because it
// could not be read.
func TestCheckAlways(t *testing.T) {
	t.Parallel()
	for path := range newChecked(t).objectsAPI {
		if path == "/version" {
			continue // the first question; without an answer, there is no cluster
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t)
			c.objectsAPI[path] = clitest.Failure{Code: http.StatusInternalServerError, Text: `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "etcd is gone"}`}
			var out bytes.Buffer
			root := &cobra.Command{Use: "pillion", SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(newCheckAt(func() time.Time { return c.now }))
			root.SetArgs([]string{"check", "--kubeconfig", c.kubeconfig(t), "-o", "json"})
			root.SetOut(&out)
			root.SetErr(&out)
			if err := root.Execute(); err != nil {
				t.Errorf("%v: %s", err, out.String())
			}
			var report check.Report
			if err := json.Unmarshal(out.Bytes(), &report); err != nil {
				t.Fatal(err, out.String())
			}
			if len(report.Checks) != 12 {
				t.Errorf("the report has %d checks: %s", len(report.Checks), report.Summary)
			}
			for _, c := range report.Checks {
				if c.Result != check.OK && c.Result != check.NotChecked {
					t.Errorf("%s is %s: %s %q", c.Name, c.Result, c.Message, c.Details)
				}
			}
		})
	}
}

// TestCheckCommand compares the output of check about clusters of a made-up API with golden files. The
// package check has those about all results of each check; these are about what is read.
func TestCheckCommand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*certified)
		code   int
		args   []string
	}{
		"well":      {func(*certified) {}, exitOK, nil},
		"namespace": {func(*certified) {}, exitOK, []string{"--namespace", "shop"}},
		"bad": {func(c *certified) {
			c.objectsAPI["/version"] = `{"gitVersion": "v1.29.0"}`
			c.objectsAPI[deploymentPath] = deploymentOf(2, 1)
			c.objectsAPI[reviewsPath+"subjectaccessreviews"] = review("system:serviceaccount:pillion-system:pillion serviceaccounts", "leases")
			delete(c.objectsAPI, kindsPath+"sidecartemplates.pillion.dev")
			c.objectsAPI[systemPath+"pods/pillion-b:8080/proxy/readyz"] = "[+]templates ok: revision ba9876543210, 1 in use\nready\n"
			c.objectsAPI[systemPath+"configmaps/pillion-templates"] = corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "pillion-templates"}, Data: map[string]string{"wrong.yaml": "kind: Wrong\n"}}
			mutating := c.objectsAPI[mutatingPath].(admissionregistrationv1.MutatingWebhookConfiguration)
			mutating.Webhooks[0].ClientConfig.CABundle = nil
			c.objectsAPI["/api/v1/namespaces/shop/pods"] = create(nil)
		}, exitProblem, nil},
		"system-namespace": {func(c *certified) {
			c.objectsAPI["/api/v1/namespaces/kube-system"] = thing("v1", "Namespace", "", "kube-system", nil)
		}, exitOK, []string{"--namespace", "kube-system"}},
		"requested": {func(c *certified) {
			agent := c.objectsAPI[agentsPath].(map[string]any)["items"].([]any)[0].(map[string]any)
			agent["metadata"].(map[string]any)["generation"] = 2
			agent["spec"].(map[string]any)["default"] = false
			c.objectsAPI["/api/v1/namespaces/shop/pods"] = clitest.Answer(func(r *http.Request) any {
				var pod corev1.Pod
				_ = json.NewDecoder(r.Body).Decode(&pod)
				if pod.Annotations["pillion.dev/templates"] == "agent" {
					pod.Annotations["agent.pillion.dev/injected"] = "0123456789ab"
				}
				return pod
			})
		}, exitOK, nil},
		"more-rights": {func(c *certified) {
			c.objectsAPI[reviewsPath+"subjectaccessreviews"] = clitest.Answer(func(*http.Request) any {
				return map[string]any{"apiVersion": "v1", "kind": "SubjectAccessReview", "status": map[string]any{"allowed": true}}
			})
		}, exitOK, nil},
		"no-policy": {func(c *certified) {
			delete(c.objectsAPI, limitsPath+manifests.CertsPolicy)
			c.objectsAPI[limitBindingsPath+manifests.RolloutPolicy] = policyBinding(manifests.RolloutPolicy, "Warn")
		}, exitOK, nil},
		"policy-unknown": {func(c *certified) {
			c.objectsAPI[limitBindingsPath+manifests.RolloutPolicy] = nil // forbidden
		}, exitOK, nil},
		"rejected": {func(c *certified) {
			bad := thing("pillion.dev/v1alpha1", "SidecarTemplate", "shop", "bad", nil)
			bad["spec"] = map[string]any{"pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "${nonsense}"}}}}
			bad["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "Invalid", "message": "This template is invalid.", "observedGeneration": 0}}}
			c.objectsAPI["/apis/pillion.dev/v1alpha1/sidecartemplates"] = listOf("SidecarTemplateList", bad)
		}, exitProblem, nil},
		"replicas": {func(c *certified) {
			c.objectsAPI[systemPath+"pods/pillion-a:8080/proxy/readyz"] = clitest.Failure{Code: http.StatusServiceUnavailable, Text: "[-]templates failed: the namespaces are not loaded yet\nnot ready\n"}
			c.objectsAPI[systemPath+"pods/pillion-b:8080/proxy/readyz"] = nil
		}, exitProblem, nil},
		"denied": {func(c *certified) {
			c.objectsAPI["/api/v1/namespaces/shop/pods"] = clitest.Failure{Code: http.StatusInternalServerError, Text: `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError", ` +
				`"message": "Internal error occurred: failed calling webhook \"namespace.validate.pillion.dev\": failed to call webhook: Post \"https://pillion.pillion-system.svc:443/validate?timeout=10s\": dial tcp 10.96.0.7:443: connect: connection refused"}`}
		}, exitProblem, nil},
		"quota": {func(c *certified) {
			first := thing("v1", "Namespace", "", "full", map[string]any{"labels": map[string]any{"pillion.dev/inject": "enabled", "kubernetes.io/metadata.name": "full"}})
			list := c.objectsAPI["/api/v1/namespaces"].(map[string]any)
			list["items"] = append([]any{first}, list["items"].([]any)...)
			c.objectsAPI["/api/v1/namespaces/full/pods"] = clitest.Failure{Code: http.StatusForbidden, Text: `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", ` +
				`"details": {"name": "pillion-check-x", "kind": "pods"}, "message": "pods \"pillion-check-x\" is forbidden: exceeded quota: full, requested: pods=1, used: pods=4, limited: pods=4"}`}
		}, exitOK, nil},
		"viewer": {func(c *certified) {
			mayNotCreate(c)
			c.objectsAPI[kindsPath+"clustersidecartemplates.pillion.dev"], c.objectsAPI[kindsPath+"sidecartemplates.pillion.dev"] = nil, nil
			c.objectsAPI["/apis/apps/v1/namespaces/shop/replicasets"] = listOf("ReplicaSetList", failingSet("full", "exceeded quota: full"))
		}, exitOK, nil},
		"viewer-denied": {func(c *certified) {
			mayNotCreate(c)
			validating := c.objectsAPI[validatingPath].(admissionregistrationv1.ValidatingWebhookConfiguration)
			validating.Webhooks[0].Rules = []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}
			c.objectsAPI[configsPath+"validatingwebhookconfigurations"] = listOf("ValidatingWebhookConfigurationList", clitest.Named(validating))
			c.objectsAPI["/apis/apps/v1/namespaces/shop/replicasets"] = listOf("ReplicaSetList", failingSet("full", "exceeded quota: full"),
				failingSet("api", `Internal error occurred: failed calling webhook "namespace.validate.pillion.dev": failed to call webhook: Post "https://pillion.pillion-system.svc:443/validate?timeout=10s": context deadline exceeded`))
		}, exitProblem, nil},
		"viewer-no-kinds": {func(c *certified) {
			mayNotCreate(c)
			c.objectsAPI[kindsPath+"clustersidecartemplates.pillion.dev"], c.objectsAPI[kindsPath+"sidecartemplates.pillion.dev"] = nil, nil
			for _, path := range []string{servedPath, agentsPath, servedPath + "/sidecartemplates"} {
				delete(c.objectsAPI, path)
			}
		}, exitProblem, nil},
		"no-templates": {func(c *certified) { delete(c.objectsAPI, systemPath+"configmaps/pillion-templates") }, exitProblem, nil},
		"forbidden": {func(c *certified) {
			for path := range c.objectsAPI {
				c.objectsAPI[path] = nil
			}
			c.objectsAPI["/apis/pillion.dev/v1alpha1/sidecartemplates"] = nil
			c.objectsAPI["/version"] = `{"gitVersion": "v1.36.2"}`
		}, exitOK, nil},
		"pre-empty": {(*certified).empty, exitOK, []string{"--pre"}},
		"pre-bad": {func(c *certified) {
			c.objectsAPI["/version"] = `{"gitVersion": "v1.28.0"}`
			c.objectsAPI["/api/v1/namespaces/default/pods"] = create(nil, "restartPolicy")
			c.objectsAPI[reviewsPath+"selfsubjectaccessreviews"] = review("leases", "customresourcedefinitions")
			delete(c.objectsAPI, cmPath)
		}, exitProblem, []string{"--pre", "--system-namespace", "other"}},
		"pre-forbidden": {func(c *certified) {
			for path := range c.objectsAPI {
				c.objectsAPI[path] = nil
			}
			c.objectsAPI[cmPath] = metav1.APIResourceList{GroupVersion: "cert-manager.io/v1"}
		}, exitOK, []string{"--pre"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t)
			test.change(c)
			var out bytes.Buffer
			root := &cobra.Command{Use: "pillion", SilenceErrors: true, SilenceUsage: true}
			cmd := newCheckAt(func() time.Time { return c.now })
			root.AddCommand(cmd)
			kubeconfig := c.kubeconfig(t)
			root.SetArgs(append([]string{"check", "--kubeconfig", kubeconfig}, test.args...))
			root.SetOut(&out)
			root.SetErr(&out)
			code := exitOK
			if err := root.Execute(); err != nil {
				code = exitProblem
				if err.Error() != cli.ErrTold.Error() {
					out.WriteString(err.Error())
				}
			}
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			text := strings.NewReplacer(c.endpoint, "192.0.2.10:8443", kubeconfig, "FILE").Replace(out.String())
			golden.File(t, filepath.Join("testdata", "check", name+".txt"), []byte(text))
		})
	}
}

// mayNotCreate takes the right to create pods in the namespace shop away.
func mayNotCreate(c *certified) {
	c.objectsAPI["/api/v1/namespaces/shop/pods"] = clitest.Failure{Code: http.StatusForbidden, Text: `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", ` +
		`"details": {"kind": "pods"}, "message": "pods is forbidden: User \"viewer\" cannot create resource \"pods\" in API group \"\" in the namespace \"shop\""}`}
}

// failingSet is a ReplicaSet of the namespace shop that cannot create its pods.
func failingSet(name, why string) map[string]any {
	o := thing("apps/v1", "ReplicaSet", "shop", name, nil)
	o["spec"] = map[string]any{"replicas": 1, "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app"}}}}}
	o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why}}}
	return o
}
