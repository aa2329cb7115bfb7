// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/testing/golden"
)

// outsideAPI has a namespace for each reason to be outside: those of [newPagedAPI], and more.
func outsideAPI(t *testing.T) *pagedAPI {
	t.Helper()
	a := explainAPI(t)
	var all []map[string]any
	for _, text := range []string{
		`{name: shop, labels: {pillion.dev/inject: enabled}}`,
		`{name: quiet}`,
		`{name: typo, labels: {pillion.dev/inject: "yes"}}`,
		`{name: empty, labels: {pillion.dev/inject: ""}}`,
		`{name: "off", labels: {pillion.dev/inject: disabled}}`,
		`{name: trial, labels: {pillion.dev/inject: shadow}}`,
		`{name: kube-system, labels: {kubernetes.io/metadata.name: kube-system}}`,
		`{name: pillion-system, labels: {kubernetes.io/metadata.name: pillion-system}}`,
		`{name: told, labels: {pillion.dev/inject: enabled}}`,
		`{name: barred, labels: {kubernetes.io/metadata.name: barred}}`,
		`{name: in-vain, labels: {kubernetes.io/metadata.name: barred, pillion.dev/inject: enabled}}`,
		`{name: ended, deletionTimestamp: "2026-03-01T09:00:00Z"}`,
		`{name: guards}`,
	} {
		ns := yamlObject(t, "{apiVersion: v1, kind: Namespace, metadata: "+text+"}")
		all = append(all, ns)
		a.objects["/api/v1/namespaces/"+ns["metadata"].(map[string]any)["name"].(string)] = ns
	}
	a.list("/api/v1/namespaces", all...)
	spec := a.objects[pillionPath].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	container := spec["containers"].([]any)[0].(map[string]any)
	container["args"] = append(container["args"].([]any), "--exclude-namespace=told")
	for _, w := range a.objects[webhooksPath+"/pillion"].(map[string]any)["webhooks"].([]any) {
		for _, e := range w.(map[string]any)["namespaceSelector"].(map[string]any)["matchExpressions"].([]any) {
			if e.(map[string]any)["operator"] == "NotIn" {
				e.(map[string]any)["values"] = append(e.(map[string]any)["values"].([]any), "barred")
			}
		}
	}
	guard := yamlObject(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: guard}, webhooks: [{name: guard.example.com,
rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}], clientConfig: {service: {namespace: guards, name: guard}}}]}`)
	a.list(policiesPath+"validatingwebhookconfigurations", a.objects[policiesPath+"validatingwebhookconfigurations/pillion"].(map[string]any), guard)
	return a
}

// TestUnlabelled checks the reason for each namespace, and the command that opts it in. There is no
// command for namespaces that must stay out.
func TestUnlabelled(t *testing.T) {
	t.Parallel()
	a := outsideAPI(t)
	code, stdout, stderr := a.status(t, "unlabelled")
	golden.File(t, "testdata/unlabelled.txt", []byte(strings.ReplaceAll(stdout, a.file, "FILE")))
	if code != exitProblem || stderr != "" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	var fromJSON, fromYAML status.Outsiders
	_, stdout, _ = a.status(t, "unlabelled", "-o", "json")
	must(t, json.Unmarshal([]byte(stdout), &fromJSON))
	_, stdout, _ = a.status(t, "unlabelled", "-o", "yaml")
	must(t, yaml.Unmarshal([]byte(stdout), &fromYAML))
	for i, o := range fromJSON.Namespaces {
		if y := fromYAML.Namespaces[i]; y.Namespace != o.Namespace || y.Why != o.Why || y.Code != o.Code || y.Intended != o.Intended {
			t.Errorf("YAML has %+v, JSON %+v", y, o)
		}
	}
	for _, c := range []struct {
		args string
		want int
		out  string
	}{
		{"-o name", exitOK, "namespace/empty\nnamespace/quiet\nnamespace/typo\n"},
		{"shop", exitOK, "1 of 1 namespace opted in.\n"},
		{"off trial kube-system", exitOK, "3 of 3 namespaces are left out on purpose.\n"},
		{"quiet shop -o name", exitOK, "namespace/quiet\n"},
		{"in-vain", exitProblem, "1 namespace has not opted in"},
		{"nowhere", exitProblem, ""},
	} {
		if code, stdout, _ := a.status(t, append([]string{"unlabelled"}, strings.Fields(c.args)...)...); code != c.want || !strings.HasPrefix(stdout, c.out) {
			t.Errorf("%s: exit code %d, %q", c.args, code, stdout)
		}
	}
}

// TestUnlabelledHeld checks that there is no advice to opt in while Pillion has a problem, because
// pods could be denied.
func TestUnlabelledHeld(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*pagedAPI){
		"nobody answers": func(a *pagedAPI) { a.list(readyPath) },
		"no template": func(a *pagedAPI) {
			a.objects["/api/v1/namespaces/pillion-system/configmaps/pillion-templates"].(map[string]any)["data"] = map[string]any{"agent.yaml": "broken"}
		},
		"no webhook": func(a *pagedAPI) {
			delete(a.objects, webhooksPath+"/pillion")
			a.list(webhooksPath)
		},
	} {
		a := outsideAPI(t)
		spoil(a)
		for _, args := range [][]string{{"unlabelled"}, {"quiet"}} {
			if name == "no template" && args[0] == "quiet" {
				continue // status does not report it then
			}
			code, stdout, _ := a.status(t, args...)
			if code != exitProblem || !strings.Contains(stdout, "Problem: ") || strings.Contains(stdout, "pillion.dev/inject=enabled") || !strings.Contains(stdout, "it has no label pillion.dev/inject") {
				t.Errorf("%s: exit code %d\n%s", name, code, stdout)
			}
		}
		if _, stdout, stderr := a.status(t, "unlabelled", "-o", "name"); stdout != "" || !strings.HasPrefix(stderr, "pillion: label nothing yet: ") {
			t.Errorf("%s: %q, %q", name, stdout, stderr)
		}
	}
}

// TestUnlabelledForbidden checks that the command names what it is not allowed to read, and reports
// the rest by the labels.
func TestUnlabelledForbidden(t *testing.T) {
	t.Parallel()
	a := outsideAPI(t)
	a.forbids["/api/v1/namespaces"] = 1
	if code, stdout, stderr := a.status(t, "unlabelled"); code != exitProblem || stdout != "" || !strings.Contains(strings.ReplaceAll(stderr, "\n   ", ""), "name those that you are allowed to read: pillion status unlabelled NAMESPACE...") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	for _, path := range []string{webhooksPath, webhooksPath + "/pillion", policiesPath + "validatingwebhookconfigurations", pillionPath} {
		a.forbids[path] = 1
	}
	code, stdout, stderr := a.status(t, "unlabelled", "quiet", "kube-system", "shop")
	if code != exitProblem || stderr != "" || !strings.Contains(stdout, "quiet: it has no label") || strings.Contains(stdout, "label namespace kube-system") || strings.Count(stdout, "Note: ") < 3 {
		t.Errorf("exit code %d, %q\n%s", code, stderr, stdout)
	}
}
