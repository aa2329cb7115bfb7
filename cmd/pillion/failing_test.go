// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// wantText runs status, and looks for sentences in its text, however they are broken.
func (a *pagedAPI) wantText(t *testing.T, code int, args []string, want ...string) string {
	t.Helper()
	got, stdout, stderr := a.status(t, args...)
	all := strings.Join(strings.Fields(stdout+stderr), " ")
	for _, sentence := range want {
		if !strings.Contains(all, sentence) || got != code {
			t.Errorf("exit code %d, want %d and %q\n%s%s", got, code, sentence, stdout, stderr)
		}
	}
	return all
}

// injectedPods gives the pods of shop sidecars of an older revision.
func (a *pagedAPI) injectedPods() {
	a.lists[shopPods] = func(i int) map[string]any {
		pod := barePod("shop", i)
		pod["metadata"].(map[string]any)["annotations"] = map[string]any{"agent.pillion.dev/injected": "0123456789ab"}
		pod["spec"].(map[string]any)["initContainers"] = []any{map[string]any{"name": "agent", "image": "agent:1", "restartPolicy": "Always"}}
		return pod
	}
}

// TestStatusNotOptedIn checks that status suggests no restart of workloads with sidecars in a
// namespace that is not opted in.
func TestStatusNotOptedIn(t *testing.T) {
	t.Parallel()
	for label, why := range map[string]string{
		"true":     "a new pod would have no sidecars: the namespace shop has the label pillion.dev/inject: true; the value must be enabled, disabled or shadow",
		"disabled": "a new pod would have no sidecars: the namespace shop has the label pillion.dev/inject: disabled",
		"shadow":   "a new pod would have no sidecars: the namespace shop has the label pillion.dev/inject: shadow",
		"":         "a new pod would have no sidecars: neither the namespace shop nor the pod has the label pillion.dev/inject: enabled",
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			a := newPagedAPI(3)
			a.injectedPods()
			labels := map[string]any{"pillion.dev/inject": label}
			if label == "" {
				delete(labels, "pillion.dev/inject")
			}
			a.objects["/api/v1/namespaces/shop"] = thing("v1", "Namespace", "", "shop", map[string]any{"labels": labels})
			a.wantText(t, exitOK, []string{"shop"}, "a restart does not help: "+why)
			if _, names, _ := a.status(t, "shop", "-o", "name"); names != "" {
				t.Errorf("it names %q", names)
			}
		})
	}
}

// TestStatusCommand checks that the printed command inspects the same cluster and namespaces as the
// command that printed it.
func TestStatusCommand(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(3)
	text := a.wantText(t, exitProblem, []string{"-n", "shop", "quiet", "--context", "c", "--system-namespace", "pillion-system"}, "A restart fixes")
	want := fmt.Sprintf("pillion status shop quiet --kubeconfig %s --context c --system-namespace pillion-system -o name | xargs -r -L1 kubectl --kubeconfig %s --context c rollout restart", a.file, a.file)
	if !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	a.list(shopPods+"?app in (web)", barePod("shop", 1))
	out := thing("v1", "Pod", "shop", "out", map[string]any{"labels": map[string]any{"pillion.dev/inject": "disabled"}})
	out["spec"] = barePod("shop", 0)["spec"]
	a.list(shopPods+"?app in (api,web)", barePod("shop", 1), out)
	templates := filepath.Join(t.TempDir(), "my templates")
	must(t, os.Mkdir(templates, 0o700))
	write(t, filepath.Join(templates, "agent.yaml"), agentTemplate)
	a.wantText(t, exitProblem, []string{"shop", "-l", "app in (web, api)", "--templates", templates, "-o", "text"},
		fmt.Sprintf("pillion status shop --selector 'app in (api,web)' --templates '%s' --kubeconfig", templates),
		fmt.Sprintf("In the namespace shop, 1 pod gets no sidecar. To see why: pillion explain --templates '%s' --kubeconfig", templates), " pod/out -n shop")
	a.wantText(t, exitProblem, []string{"-A"}, "pillion status --all-namespaces --kubeconfig")
	for in, out := range map[string]string{"a/b.yaml": "a/b.yaml", "": "''", "it's $(x)": `'it'\''s $(x)'`} {
		if got := cli.Quote(in); got != out {
			t.Errorf("quote(%q) is %s, want %s", in, got, out)
		}
	}
}

// TestStatusURL checks whether status can see that a webhook with a URL does not answer.
func TestStatusURL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url, want string
		code      int
	}{
		"refused":   {closedURL(), "Problem: Nothing listens at " + closedURL(), exitProblem},
		"not known": {"https://pillion.invalid", "Uncertain: Whether Pillion has a ready endpoint is unknown: https://pillion.invalid is not reachable from here", exitOK},
		"listens":   {openURL(), "A restart fixes", exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newPagedAPI(3)
			a.injectedPods()
			webhooks := a.objects[webhooksPath+"/pillion"].(map[string]any)["webhooks"].([]any)
			for _, w := range webhooks {
				w.(map[string]any)["clientConfig"] = map[string]any{"url": c.url}
			}
			text := a.wantText(t, c.code, []string{"shop"}, c.want)
			if strings.Contains(text, "No problems") || strings.Contains(text, "Do not restart anything yet") != (name != "listens") {
				t.Error(text)
			}
		})
	}
}

// TestStatusFailing checks that status reports owners that cannot create pods, although there is no
// pod to inspect.
func TestStatusFailing(t *testing.T) {
	t.Parallel()
	const failure = `status: {conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: "admission webhook \"x\" denied\n the request"}]}}`
	set := func(more string) string {
		return `{metadata: {name: web-5f7, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]` + more + `}, spec: {template: {}}, ` + failure
	}
	for name, c := range map[string]struct {
		path, object, want string // "": it is well
	}{
		"denied":           {"apps/v1/namespaces/shop/replicasets", set(""), `Failing: Deployment/web in the namespace shop cannot create its pods: admission webhook "x" denied the request`},
		"deleted":          {"apps/v1/namespaces/shop/replicasets", set(", deletionTimestamp: '2026-03-01T09:00:00Z'"), ""},
		"StatefulSet":      {"apps/v1/namespaces/shop/statefulsets", `{metadata: {name: db, generation: 1}, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 1, readyReplicas: 1}}`, "StatefulSet/db in the namespace shop cannot create its pods: it has 1 of 3 pods; see its events"},
		"one by one":       {"apps/v1/namespaces/shop/statefulsets", `{metadata: {name: db}, spec: {replicas: 3}, status: {replicas: 1}}`, ""},
		"all at once":      {"apps/v1/namespaces/shop/statefulsets", `{metadata: {name: db}, spec: {replicas: 3, podManagementPolicy: Parallel}, status: {replicas: 1}}`, "it has 1 of 3 pods"},
		"changed just now": {"apps/v1/namespaces/shop/statefulsets", `{metadata: {name: db, generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 1, readyReplicas: 1}}`, ""},
		"DaemonSet":        {"apps/v1/namespaces/shop/daemonsets", `{metadata: {name: net}, status: {currentNumberScheduled: 1, desiredNumberScheduled: 2}}`, "DaemonSet/net in the namespace shop cannot create its pods: it has 1 of 2 pods"},
		"Job":              {"batch/v1/namespaces/shop/jobs", `{metadata: {name: once}, status: {startTime: "2026-03-01T09:00:00Z"}}`, "Job/once in the namespace shop cannot create its pods: it has 0 of 1 pods"},
		"Job of a cluster": {"batch/v1/namespaces/shop/jobs", `{metadata: {name: once, generation: 1}, status: {startTime: "2026-03-01T09:00:00Z"}}`, "Job/once in the namespace shop cannot create its pods: it has 0 of 1 pods"},
		"suspended Job":    {"batch/v1/namespaces/shop/jobs", `{metadata: {name: once}, spec: {suspend: true}, status: {startTime: "2026-03-01T09:00:00Z"}}`, ""},
		"failed Job":       {"batch/v1/namespaces/shop/jobs", `{metadata: {name: once}, status: {startTime: "2026-03-01T09:00:00Z", failed: 1}}`, ""},
		"new Job":          {"batch/v1/namespaces/shop/jobs", `{metadata: {name: once}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newPagedAPI(0)
			a.list("/apis/"+c.path, yamlObject(t, c.object))
			code := exitProblem
			if c.want == "" {
				code = exitOK
			}
			if text := a.wantText(t, code, []string{"shop"}, c.want); c.want == "" && strings.Contains(text, "cannot make") {
				t.Error(text)
			}
			r, _ := a.report(t, "-A")
			if (len(r.Failing) > 0) != (c.want != "") {
				t.Errorf("of all namespaces: %+v", r.Failing)
			}
			a.objects["/api/v1/namespaces/shop"] = thing("v1", "Namespace", "", "shop", nil)
			a.wantText(t, exitOK, []string{"shop"}, "There is no pod in 1 namespace.") // which is not opted in
			a.forbids["/apis/"+c.path] = 1
			a.wantText(t, exitOK, []string{"shop"}, "in the namespace shop, so whether all their pods can be created is unknown.")
		})
	}
	t.Run("by itself", func(t *testing.T) {
		t.Parallel()
		a := newPagedAPI(0)
		object := yamlObject(t, strings.ReplaceAll(set(`, labels: {pillion.dev/inject: enabled}`), "namespace: shop", "namespace: quiet"))
		object["spec"] = map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"pillion.dev/inject": "enabled"}}}}
		a.list(optedInPods)
		a.list(allSets+"?pillion.dev/inject=enabled", object)
		a.list("/apis/apps/v1/namespaces/quiet/replicasets", object)
		a.wantText(t, exitProblem, []string{"-A"}, "Failing: Deployment/web in the namespace quiet cannot create its pods")
		a.forbids[allSets+"?pillion.dev/inject=enabled"] = 1
		a.wantText(t, exitOK, []string{"-A"}, "Note: You are not allowed to list replicasets in all namespaces")
	})
}

// TestStatusEvents checks that the last event explains why an owner cannot create its pods, if the
// user may read events.
func TestStatusEvents(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/shop/events"
	a := newPagedAPI(0)
	a.list("/apis/batch/v1/namespaces/shop/jobs", yamlObject(t, `{metadata: {name: once, namespace: shop, generation: 1}, status: {startTime: "2026-03-01T09:00:00Z"}}`))
	a.list("/apis/apps/v1/namespaces/shop/statefulsets", yamlObject(t, `{metadata: {name: db, namespace: shop}, spec: {replicas: 3}, status: {replicas: 1, readyReplicas: 1}}`))
	event := func(at, message string) map[string]any {
		return yamlObject(t, fmt.Sprintf("{reason: FailedCreate, lastTimestamp: %q, message: %q}", at, message))
	}
	a.list(path, event("2026-03-01T10:00:00Z", "(combined from similar events): Error creating: second"), event("2026-03-01T09:00:00Z", "Error creating: first"))
	a.wantText(t, exitProblem, []string{"shop"}, "Job/once in the namespace shop cannot create its pods: it has 0 of 1 pods: second")
	a.list(path, event("2026-03-01T10:00:00Z", "create Pod db-1 in StatefulSet db failed error: third"), yamlObject(t, `{message: fourth, series: {lastObservedTime: "2026-03-01T11:00:00.000000Z", count: 2}}`))
	a.wantText(t, exitProblem, []string{"shop"}, "StatefulSet/db in the namespace shop cannot create its pods: it has 1 of 3 pods: fourth")
	a.forbids[path] = 2
	a.wantText(t, exitProblem, []string{"shop"}, "it has 0 of 1 pods; see its events", "it has 1 of 3 pods; see its events")
}

// TestStatusNoTemplates checks the report of an installation whose webhooks exist and whose
// templates are gone.
func TestStatusNoTemplates(t *testing.T) {
	t.Parallel()
	const gone = "there is no ConfigMap pillion-templates in the namespace pillion-system"
	a := explainAPI(t)
	delete(a.objects, "/api/v1/namespaces/pillion-system/configmaps/pillion-templates")
	a.wantText(t, exitProblem, []string{"-A"}, gone, "new pods that opted in are denied (failurePolicy Fail).")
	delete(a.objects, policiesPath+"validatingwebhookconfigurations/pillion")
	a.wantText(t, exitProblem, []string{"-A"}, gone, "new pods that opted in start without sidecars (failurePolicy Ignore).")
	delete(a.objects, webhooksPath+"/pillion")
	if text := a.wantText(t, exitProblem, []string{"-A"}, gone); strings.Contains(text, "still installed") {
		t.Error(text)
	}
}
