// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
)

// explainText runs explain against the API and gives its text, however it is broken.
func (a *pagedAPI) explainText(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if code := run(append([]string{"explain", "--kubeconfig", a.kubeconfig(t)}, args...), nil, &out, &out); code != want {
		t.Errorf("%q: exit code %d, want %d\n%s", args, code, want, &out)
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// runningAPI has the Deployments web and api in shop, with 2 and 1 pods that are older than the namespace's label.
func runningAPI(t *testing.T) *pagedAPI {
	t.Helper()
	a := explainAPI(t)
	a.objects["/api/v1/namespaces/shop"] = yamlObject(t, `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {pillion.dev/inject: enabled},
managedFields: [{manager: x, operation: Update, time: "2026-02-01T00:00:00Z", fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:labels": {"f:pillion.dev/inject": {}}}}}]}}`)
	var deployments, pods []map[string]any
	for _, name := range []string{"web", "web", "api"} {
		pods = append(pods, yamlObject(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %[1]s-5f7-%[2]d, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z", labels: {app: %[1]s, pod-template-hash: 5f7},
ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: %[1]s-5f7, uid: u, controller: true}]}, spec: {containers: [{name: web, image: "web:1"}]}}`, name, len(pods))))
	}
	for _, name := range []string{"web", "api"} {
		d := yamlObject(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, namespace: shop}, spec: {selector: {matchLabels: {app: %[1]s}},
template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: web, image: "web:1"}]}}}}`, name))
		deployments = append(deployments, d)
		a.objects[shopDeployments+"/"+name] = d
	}
	a.list(shopDeployments, deployments...)
	a.list(shopPods, pods...)
	a.list(shopPods+"?app=web", pods[:2]...)
	for _, k := range cluster.Kinds() {
		kind := k.Resource()
		if path := fmt.Sprintf("/apis/%s/v1/namespaces/shop/%s", kind.Group, kind.Resource); a.lists[path] == nil {
			a.list(path)
		}
	}
	a.list("/api/v1/namespaces/shop/replicationcontrollers")
	a.list("/api/v1/namespaces/shop/limitranges")
	a.list("/api/v1/namespaces/shop/resourcequotas")
	return a
}

// TestExplainRunning checks the report about a workload: it describes the next pod, and what the
// running pods lack of that.
func TestExplainRunning(t *testing.T) {
	t.Parallel()
	a := runningAPI(t)
	const older = "does not have it, for example web-5f7-0: the pod is older than the namespace's label pillion.dev/inject"
	text := a.explainText(t, exitOK, "deploy/web", "-n", "shop")
	for _, want := range []string{
		"agent: 2 of 2 pods " + strings.Replace(older, "does", "do", 1), "agent: injected",
		"A restart fixes it: kubectl --kubeconfig " + a.file + " rollout restart deployment/web -n shop",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	text = a.explainText(t, exitOK, "-n", "shop") // both are in the same situation, so one entry has 3 pods
	for _, want := range []string{"A new pod gets 1 template. Running pods differ from a new one, as listed here.", "agent: 3 of 3 pods do not have it", "A restart fixes 2 workloads: pillion status shop --kubeconfig"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	reports, _ := a.explainJSON(t, exitOK, "deploy/web", "-n", "shop")
	if r := reports[0].Running; r == nil || r.Pods != 2 || len(r.Behind) != 1 || r.Behind[0].Pods != 2 || r.Behind[0].State != "missing" || len(r.Restart) != 1 {
		t.Errorf("running is %+v", r)
	}
	// What may not be read is noted, what is supposed only is not compared, and what a new pod lacks too is not said twice.
	if text := a.explainText(t, exitOK, "deploy/web", "-n", "shop", "--namespace-label", "a=b"); strings.Contains(text, "running pods") {
		t.Errorf("it compares what is not:\n%s", text)
	}
	a.forbids[shopPods+"?app=web"] = 1
	if text := a.explainText(t, exitOK, "deploy/web", "-n", "shop"); !strings.Contains(text, "The running pods of the namespace shop are unknown: you are not allowed to list pods.") {
		t.Errorf("it does not say that pods are not read:\n%s", text)
	}
	a = runningAPI(t)
	a.list(readySlices)
	if text := a.explainText(t, exitProblem, "deploy/web", "-n", "shop"); strings.Contains(text, "rollout restart") || strings.Contains(text, "running pods") {
		t.Errorf("it advises a restart while nobody answers:\n%s", text)
	}
	a = runningAPI(t)
	a.objects[shopDeployments+"/web"].(map[string]any)["spec"].(map[string]any)["paused"] = true
	if text := a.explainText(t, exitOK, "deploy/web", "-n", "shop"); !strings.Contains(text, "a restart does not help: it is paused") {
		t.Errorf("it does not say that a restart does not help:\n%s", text)
	}
}
