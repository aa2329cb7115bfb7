// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/testing/golden"
)

const (
	policiesPath = "/apis/admissionregistration.k8s.io/v1/"
	readyPath    = readySlices
	pillionPath  = "/apis/apps/v1/namespaces/pillion-system/deployments/pillion"
	webPath      = "/apis/apps/v1/namespaces/shop/deployments/web"
)

// explainAPI is [newPagedAPI] with all of Pillion, one replica that is ready, and
// the Deployment web.
func explainAPI(t *testing.T) *pagedAPI {
	t.Helper()
	a := newPagedAPI(1)
	for path, file := range map[string]string{pillionPath: "40-deployment", policiesPath + "validatingwebhookconfigurations/pillion": "80-validatingwebhookconfiguration"} {
		text, err := os.ReadFile("../../manifests/base/" + file + ".yaml")
		must(t, err)
		a.objects[path] = yamlObject(t, string(text))
	}
	web := thing("apps/v1", "Deployment", "shop", "web", nil)
	web["spec"] = map[string]any{"template": map[string]any{"spec": barePod("shop", 0)["spec"]}}
	a.objects[webPath] = web
	a.objects[shopPods+"/web"] = barePod("shop", 0)
	a.list(readyPath, yamlObject(t, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a}, addressType: IPv4,
endpoints: [{addresses: [10.0.0.1], conditions: {ready: false}}, {addresses: [10.0.0.2], conditions: {ready: true}}]}`))
	return a
}

func yamlObject(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	must(t, yaml.Unmarshal([]byte(text), &object))
	return object
}

func (a *pagedAPI) list(path string, objects ...map[string]any) {
	a.lists[path], a.length[path] = func(i int) map[string]any { return objects[i] }, len(objects)
}

// TestExplainMisfits checks that a flag can set the Pod Security level of a file's namespaces.
func TestExplainMisfits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "t.yaml"), strings.Replace(agentTemplate, "restartPolicy", "securityContext: {privileged: true}, restartPolicy", 1))
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: "web:1"}]}}`
	review := `{kind: AdmissionReview, request: {operation: CREATE, namespace: shop, resource: {version: v1, resource: pods}, object: ` + pod + `}}`
	for _, manifest := range []string{pod, review} {
		for label, want := range map[string]int{"enforce=baseline": exitProblem, "enforce=privileged": exitOK, "warn=baseline": exitOK} {
			var out bytes.Buffer
			code := run([]string{"explain", "-f", "-", "-t", dir, "--namespace-label", "pod-security.kubernetes.io/" + label}, strings.NewReader(manifest), &out, &out)
			if said := strings.Contains(out.String(), "the namespace enforces the Pod Security level baseline"); code != want || said != (want != exitOK) {
				t.Errorf("%s: exit code %d\n%s", label, code, &out)
			}
		}
	}
}

// TestExplainReviews checks that explain reports a review that is no request for a pod.
func TestExplainReviews(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		`operation: CREATE, resource: {version: v1, resource: pods}`:             "has no request.object",
		`operation: CREATE, resource: {version: v2, resource: pods}, object: {}`: "is not about the creation of a pod",
		`operation: UPDATE, resource: {version: v1, resource: pods}, object: {}`: "is not about the creation of a pod",
	} {
		var out bytes.Buffer
		code := run([]string{"explain", "-f", "-", "-t", "testdata/templates"}, strings.NewReader("{kind: AdmissionReview, request: {"+request+"}}"), &out, &out)
		if code != exitProblem || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%s: exit code %d\n%s", request, code, &out)
		}
	}
}

// TestExplainCluster checks that the report contains what the cluster provides. Each case has a
// golden file.
func TestExplainCluster(t *testing.T) {
	t.Parallel()
	excluding := func(a *pagedAPI) {
		pod := a.objects[pillionPath].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		c := pod["containers"].([]any)[0].(map[string]any)
		c["args"] = append(c["args"].([]any), "--exclude-namespace=lab,shop")
	}
	t.Run("excluded, by templates of one's own", func(t *testing.T) {
		a := explainAPI(t)
		excluding(a)
		var out bytes.Buffer
		run([]string{"explain", "--kubeconfig", a.kubeconfig(t), "-n", "shop", "--templates", "testdata/templates", "deploy/web"}, nil, &out, &out)
		if !strings.Contains(out.String(), "excluded_namespace") {
			t.Error(out.String())
		}
	})
	for _, c := range []struct {
		name, object string
		edit         func(*pagedAPI)
		code         int
	}{
		{"well", "deploy/web", func(*pagedAPI) {}, exitOK},
		{"excluded", "deploy/web", excluding, exitOK},
		{"nobody", "deploy/web", func(a *pagedAPI) { a.list(readyPath) }, exitProblem},
		{"nobody-ignored", "deploy/web", func(a *pagedAPI) {
			a.list(readyPath)
			delete(a.objects, policiesPath+"validatingwebhookconfigurations/pillion")
		}, exitOK},
		{"nobody-live", "pod/web", func(a *pagedAPI) { a.list(readyPath) }, exitOK},
		{"others", "deploy/web", func(a *pagedAPI) {
			a.list(webhooksPath, a.lists[webhooksPath](0), yamlObject(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration,
metadata: {name: zeal}, webhooks: [{name: zeal.example.com, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}],
reinvocationPolicy: IfNeeded}, {name: elsewhere.example.com, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}],
namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: elsewhere}}}]}`))
			for _, kind := range []string{"Mutating", "Validating"} {
				own := yamlObject(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: `+kind+`AdmissionPolicy, metadata: {name: pillion-agent,
labels: {app.kubernetes.io/managed-by: pillion-policy}}}`)
				a.list(policiesPath+strings.ToLower(kind)+"admissionpolicies", own)
				a.list(policiesPath+strings.ToLower(kind)+"admissionpolicies?app.kubernetes.io/managed-by=pillion-policy", own)
			}
			a.list(policiesPath + "mutatingadmissionpolicybindings")
		}, exitOK},
		{"unread", "deploy/web", func(a *pagedAPI) {
			for _, path := range []string{webhooksPath, webhooksPath + "/pillion", pillionPath, readyPath, "/api/v1/namespaces/shop", policiesPath + "mutatingadmissionpolicies"} {
				a.forbids[path] = 9
			}
		}, exitOK},
		{"developer", "deploy/web", func(a *pagedAPI) {
			web := a.objects[webPath].(map[string]any)
			web["metadata"].(map[string]any)["annotations"] = map[string]any{"pillion.dev/templates": "+agent"}
			web["spec"].(map[string]any)["template"].(map[string]any)["metadata"] = map[string]any{
				"annotations": map[string]any{"pillion.dev/templates": "+log-agent", "log-agent.pillion.dev/level": "debug", "other.example/a": "b"},
			}
			for _, path := range []string{webhooksPath, webhooksPath + "/pillion", pillionPath, readyPath, policiesPath + "mutatingadmissionpolicies", "/api/v1/namespaces/pillion-system/configmaps/pillion-templates", agentsPath} {
				a.forbids[path] = 9
			}
			a.list("/api/v1/namespaces/shop/events")
			a.objects["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": "system:serviceaccount:shop:deployer"}}}
		}, exitProblem},
		{"hung", "deploy/web", func(a *pagedAPI) {
			a.objects[webPath].(map[string]any)["status"] = map[string]any{"conditions": []any{map[string]any{
				"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
				"message": "Internal error occurred: failed calling webhook \"namespace.validate.pillion.dev\": failed to call webhook: Post \"https://pillion.pillion-system.svc:443/validate?timeout=10s\": context deadline exceeded",
			}}}
		}, exitProblem},
		{"misfits", "deploy/web", func(a *pagedAPI) {
			labels := a.objects["/api/v1/namespaces/shop"].(map[string]any)["metadata"].(map[string]any)["labels"].(map[string]any)
			labels["pod-security.kubernetes.io/enforce"] = "baseline"
			config := a.objects["/api/v1/namespaces/pillion-system/configmaps/pillion-templates"].(map[string]any)
			config["data"] = map[string]any{"agent.yaml": strings.Replace(agentTemplate, "restartPolicy", "securityContext: {privileged: true}, restartPolicy", 1)}
			a.list("/api/v1/namespaces/shop/limitranges", yamlObject(t, `{apiVersion: v1, kind: LimitRange, metadata: {name: small},
spec: {limits: [{type: Container, defaultRequest: {cpu: 100m}}]}}`))
			a.list("/api/v1/namespaces/shop/resourcequotas", yamlObject(t, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: team}, spec: {hard: {requests.cpu: 150m}}}`))
		}, exitProblem},
		{"limits-unread", "deploy/web", func(a *pagedAPI) {
			a.forbids["/api/v1/namespaces/shop/limitranges"], a.forbids["/api/v1/namespaces/shop/resourcequotas"] = 9, 9
		}, exitOK},
		{"endpoints-unread", "deploy/web", func(a *pagedAPI) { a.forbids[readyPath] = 9 }, exitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := explainAPI(t)
			c.edit(a)
			var out, errs bytes.Buffer
			kubeconfig := a.kubeconfig(t)
			code := run([]string{"explain", "--kubeconfig", kubeconfig, "-n", "shop", c.object}, nil, &out, &errs)
			if code != c.code || errs.Len() > 0 {
				t.Errorf("exit code %d, want %d; %s", code, c.code, &errs)
			}
			for line := range strings.Lines(out.String()) {
				if utf8.RuneCountInString(line) > 101 && !strings.Contains(line, "`") && !strings.HasPrefix(line, "    kubectl ") { // commands are not wrapped
					t.Errorf("too long: %s", line)
				}
			}
			golden.File(t, filepath.Join("testdata", "explain", c.name+".txt"), []byte(regexp.MustCompile(`\b[0-9a-f]{12}\b`).ReplaceAllString(strings.ReplaceAll(out.String(), kubeconfig, "FILE"), "REVISION")))
		})
	}
}
