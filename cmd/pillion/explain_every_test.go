// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/inject/report/explain"
)

// explainJSON runs explain against the API and gives its reports.
func (a *pagedAPI) explainJSON(t *testing.T, want int, args ...string) (reports []explain.Report, stderr string) {
	t.Helper()
	code, stdout, stderr := a.runExplain(t, args...)
	if code != want {
		t.Errorf("%q: exit code %d, want %d\n%s", args, code, want, stderr)
	}
	return parseReports(t, stdout, stderr), stderr
}

func (a *pagedAPI) runExplain(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(append([]string{"explain", "--kubeconfig", a.kubeconfig(t), "-o", "json"}, args...), nil, &out, &errs)
	return code, out.String(), errs.String()
}

func parseReports(t *testing.T, stdout, stderr string) []explain.Report {
	t.Helper()
	var all struct{ Reports []explain.Report }
	if stdout != "" {
		if err := json.Unmarshal([]byte(stdout), &all); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
	}
	return all.Reports
}

// titles are the objects of the reports, those of one report together.
func titles(reports []explain.Report) (all []string) {
	for i := range reports {
		r := &reports[i]
		title := r.Object.Namespace + ":" + r.Object.Kind + "/" + r.Object.Name
		for _, o := range r.Same {
			title += "=" + o.Namespace + ":" + o.Kind + "/" + o.Name
		}
		all = append(all, title)
	}
	return all
}

const (
	allDeployments = "/apis/apps/v1/deployments"
	shopCronJobs   = "/apis/batch/v1/namespaces/shop/cronjobs"
)

// everyAPI has these objects in the namespace shop: 1203 Deployments, of which two opted out, one requests nothing and
// one has a conflict; a CronJob; ReplicaSets and their pods; a pod without an owner, listed twice, once ended; and two
// objects of a kind that Kubernetes does not have, each with a pod. It has two Deployments in the namespace quiet.
func everyAPI(t *testing.T) *pagedAPI {
	t.Helper()
	a := explainAPI(t)
	deployment := func(namespace, name, metadata string, container string) map[string]any {
		return yamlObject(t, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: %s}, spec: {template: {metadata: {%s}, spec: {containers: [{name: %s, image: x}]}}}}", name, namespace, metadata, container))
	}
	shop := func(i int) map[string]any {
		switch i {
		case 3, 900:
			return deployment("shop", fmt.Sprint("web-", i), "labels: {pillion.dev/inject: disabled}", "web")
		case 4:
			return deployment("shop", "web-4", "annotations: {pillion.dev/templates: \"\"}", "web")
		case 700:
			return deployment("shop", fmt.Sprint("web-", i), "", "agent")
		}
		return deployment("shop", fmt.Sprint("web-", i), "", fmt.Sprint("c-", i))
	}
	a.lists[shopDeployments], a.length[shopDeployments] = shop, 1203
	a.lists[allDeployments], a.length[allDeployments] = func(i int) map[string]any {
		return deployment([]string{"shop", "quiet", "quiet"}[i], fmt.Sprint("web-", i), "", "web")
	}, 3
	a.list(shopDeployments+"?app=web", shop(3))
	a.list(shopCronJobs, yamlObject(t, "{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly, namespace: shop}, spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: x}]}}}}}}"))
	lone, ended := barePod("shop", 0), barePod("shop", 0)
	for _, pod := range []map[string]any{lone, ended} {
		delete(pod["metadata"].(map[string]any), "ownerReferences")
	}
	lone["metadata"].(map[string]any)["name"], ended["metadata"].(map[string]any)["name"] = "lone", "ended"
	ended["status"] = map[string]any{"phase": "Succeeded"}
	owned, x, y := barePod("shop", 1), barePod("shop", 2), barePod("shop", 3)
	for name, pod := range map[string]map[string]any{"x": x, "y": y} {
		pod["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "batch.example.com/v1", "kind": "Job", "name": name, "uid": name, "controller": true}}
	}
	a.list(shopPods, lone, ended, owned, x, y)
	for _, k := range cluster.Kinds() { // nothing else has these labels
		kind := k.Resource()
		root := "/apis/" + kind.Group
		if kind.Group == "" {
			root = "/api"
		}
		for _, selector := range []string{"?app=made", "?app=web"} {
			if path := root + "/v1/namespaces/shop/" + kind.Resource + selector; a.lists[path] == nil {
				a.list(path)
			}
		}
	}
	a.list(shopPods+"?app=made", owned)
	return a
}

// TestExplainArguments checks that explain accepts kubectl's ways to name objects.
func TestExplainArguments(t *testing.T) {
	t.Parallel()
	a := everyAPI(t)
	for _, c := range []struct {
		args string
		want []string
	}{
		{"deploy/web pod/web", []string{"shop:Deployment/web", "shop:Pod/web-0-0"}},
		{"deployment web", []string{"shop:Deployment/web"}},
		{"deployments.apps web web", []string{"shop:Deployment/web", "shop:Deployment/web"}},
		{"pods,Deploy web", []string{"shop:Pod/web-0-0", "shop:Deployment/web"}},
		{"cj", []string{"shop:CronJob/nightly"}},
		{"deploy -l app=web", []string{"shop:Deployment/web-3"}},
		{"-l app=web", []string{"shop:Deployment/web-3"}},
		{"-l app=made", []string{"shop:Pod/web-0-1"}},                                                               // no user wrote it, but nothing else has the label
		{"pods", []string{"shop:Pod/lone=shop:Pod/ended", "shop:Pod/web-0-1", "shop:Pod/web-0-2=shop:Pod/web-0-3"}}, // without a controller, of a ReplicaSet that is gone, and of an unknown kind
	} {
		reports, stderr := a.explainJSON(t, exitOK, append(strings.Fields(c.args), "-n", "shop")...)
		if got := titles(reports); !slices.Equal(got, c.want) || stderr != "" {
			t.Errorf("%s: got %q, want %q; %s", c.args, got, c.want, stderr)
		}
	}
	for args, want := range map[string]string{
		"shop/web.yaml -n shop":               "shop/web.yaml is no KIND/NAME; did you mean --filename shop/web.yaml?",
		"deploy nobody -n shop":               "deploy/nobody: NotFound",
		"sts -n shop":                         "there is no statefulset in the namespace shop",
		"sts -l app=web -n shop":              "there is no statefulset with app=web in the namespace shop",
		"-n nowhere":                          "NotFound",
		"deploy web -n shop --template agnet": `there is no template "agnet"; did you mean "agent"?`,
	} {
		code := exitProblem
		if strings.Contains(args, "--template") || strings.Contains(args, ".yaml") {
			code = exitUsage
		}
		if _, stderr := a.explainJSON(t, code, strings.Fields(args)...); !strings.Contains(stderr, want) {
			t.Errorf("%s: got %q, want %q", args, stderr, want)
		}
	}
}

// TestExplainOthers checks that the report has all other objects if one does not exist, and that -A
// has precedence over -n, as in status.
func TestExplainOthers(t *testing.T) {
	t.Parallel()
	a := everyAPI(t)
	reports, stderr := a.explainJSON(t, exitProblem, "deploy/nobody", "deploy/web", "-n", "shop")
	if got := titles(reports); !slices.Equal(got, []string{"shop:Deployment/web"}) || !strings.Contains(stderr, "deploy/nobody: NotFound") {
		t.Errorf("got %q, %s", got, stderr)
	}
	if reports, _ := a.explainJSON(t, exitOK, "deploy", "-A", "-n", "shop"); len(reports) != 2 {
		t.Errorf("got %q", titles(reports))
	}
}

// TestExplainNamespace checks the reports about a whole namespace: there is one for each situation,
// and each workload is in exactly one of them.
func TestExplainNamespace(t *testing.T) {
	t.Parallel()
	a := everyAPI(t)
	reports, _ := a.explainJSON(t, exitOK, "-n", "shop")
	var sizes []int
	for i := range reports {
		sizes = append(sizes, 1+len(reports[i].Same))
	}
	if want := []int{1, 1, 1, 2, 1199, 2, 1}; !slices.Equal(sizes, want) { // those with problems first: web-0 and three pods are not injected, web-700 has a conflict; the CronJob is with the others
		t.Errorf("situations of %v objects, want %v: %.200s", sizes, want, titles(reports))
	}
	if n := a.asked["/api/v1/namespaces/shop/limitranges"]; n != 1 {
		t.Errorf("the limits were read %d times", n)
	}
	if n := a.asked["/api/v1"]; n != 1 {
		t.Errorf("the resources of the API server were read %d times", n)
	}
	var out bytes.Buffer
	if code := run([]string{"explain", "--kubeconfig", a.kubeconfig(t), "-n", "shop"}, nil, &out, &out); code != exitOK || !strings.HasPrefix(out.String(), "Problems: 5 of 1207 workloads and pods in the namespace shop.\n\nDeployment/web-0") || !strings.Contains(out.String(), "1198 more have the same result: Deployment/web-2, ") || out.Len() > 5000 {
		t.Errorf("exit code %d, %d bytes\n%s", code, out.Len(), &out)
	}
	// Those that cannot be listed are left out.
	a.forbids[shopDeployments], a.forbids[shopPods] = 1, 1
	reports, _ = a.explainJSON(t, exitOK, "-n", "shop")
	if got := titles(reports); !slices.Equal(got, []string{"shop:CronJob/nightly"}) || !slices.ContainsFunc(reports[0].Notes, func(n string) bool {
		return strings.Contains(n, "You are not allowed to list deployments in the namespace shop")
	}) {
		t.Errorf("got %q", got)
	}
	a.forbids[shopDeployments] = 1
	if _, stderr := a.explainJSON(t, exitProblem, "deploy", "-n", "shop"); !strings.Contains(stderr, "you are not allowed to list deployments in the namespace shop") {
		t.Error(stderr)
	}
}

// TestExplainEverywhere checks that one report covers objects of several namespaces only if it is
// the same for all of them.
func TestExplainEverywhere(t *testing.T) {
	t.Parallel()
	a := everyAPI(t)
	reports, _ := a.explainJSON(t, exitOK, "-A")
	if got, want := titles(reports), []string{"shop:Deployment/web-0", "quiet:Deployment/web-1=quiet:Deployment/web-2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := reports[1].OptedIn; !strings.Contains(s, "With the label pillion.dev/inject: enabled on the namespace, the pod gets 1 template: agent.") {
		t.Errorf("of a namespace without the label it says %q", s)
	}
	// As if all namespaces, or none, had the label.
	for label, want := range map[string]bool{"pillion.dev/inject=enabled": true, "pillion.dev/inject-": false} {
		reports, _ := a.explainJSON(t, exitOK, "deploy", "-A", "--namespace-label", label)
		if len(reports) != 1 || len(reports[0].Same) != 2 || *reports[0].Called != want || (reports[0].Patch != nil) != want {
			t.Errorf("%s: %q", label, titles(reports))
		}
	}
}
