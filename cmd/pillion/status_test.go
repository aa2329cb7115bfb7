// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/report/status"
)

// TestStatusLarge checks that 10,000 pods are read in pages and never all in memory.
func TestStatusLarge(t *testing.T) {
	const pods, limit = 10_000, 32 << 20
	a := newPagedAPI(pods)
	var most, first uint64
	a.onPage = func(path string, r *http.Request) {
		if got := r.URL.Query().Get("limit"); got != "500" {
			t.Errorf("%s is asked for with the limit %q, want 500", path, got)
		}
		if path == shopPods {
			var stats runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&stats)
			if first == 0 {
				first = stats.HeapAlloc
			}
			most = max(most, stats.HeapAlloc)
		}
	}
	began := time.Now()
	r, code := a.report(t, "-A")
	t.Logf("%s; %d MB at most, %d at the first page", time.Since(began), most>>20, first>>20)
	if code != exitProblem || r.Pods.Pods != pods+1 || r.Pods.Missing != pods+1 {
		t.Errorf("exit code %d, counts %+v; want %d missing", code, r.Pods, pods+1)
	}
	if most > first+limit {
		t.Errorf("%d MB are held, and %d at the first page", most>>20, first>>20)
	}
	if got := a.asked[shopPods]; got != pods/500 {
		t.Errorf("pods are asked for %d times, want %d", got, pods/500)
	}
	if len(r.Owners) != pods/10+1 { // and the pod that opted in by itself
		t.Errorf("%d owners, want %d", len(r.Owners), pods/10+1)
	}
	if got := a.asked[shopSets]; got != 2 {
		t.Errorf("ReplicaSets are asked for %d times, want 2", got)
	}
	for i, s := range r.Owners {
		if s.Namespace == "shop" && (s.Kind != "Deployment" || s.Pods != 10 || !s.Restart) {
			t.Fatalf("owner %d is %+v, want a Deployment with 10 pods", i, s)
		}
	}
}

// TestStatusSelection checks that the report has the namespaces that opted in, and the pods that
// opted in elsewhere, each once.
func TestStatusSelection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		edit func(*pagedAPI)
		want map[string]int

		named bool
	}{
		{"kubeconfig", nil, func(a *pagedAPI) { a.namespace = "shop" }, map[string]int{"shop": 20}, true},
		{"all", []string{"-A"}, func(*pagedAPI) {}, map[string]int{"shop": 20, "quiet": 1}, false},
		{"no webhook", []string{"-A"}, func(a *pagedAPI) { a.length[webhooksPath] = 0 }, map[string]int{"shop": 20}, false},
		{"webhooks unknown", []string{"-A"}, func(a *pagedAPI) { a.forbids[webhooksPath], a.forbids[webhooksPath+"/pillion"] = 1, 1 }, map[string]int{"shop": 20, "quiet": 1}, false},
		{"argument", []string{"shop", "shop"}, func(*pagedAPI) {}, map[string]int{"shop": 20}, true},
		{"flag", []string{"-n", "shop,quiet"}, func(*pagedAPI) {}, map[string]int{"shop": 20, "quiet": 0}, true},
		{"shadowed", []string{"trial"}, func(*pagedAPI) {}, map[string]int{"trial": 3}, true},
		{"mislabelled", []string{"typo"}, func(*pagedAPI) {}, map[string]int{"typo": 0}, true},
		{"all namespaces, whatever the environment says", []string{"--all-namespaces", "-n", "trial"}, func(*pagedAPI) {}, map[string]int{"shop": 20, "quiet": 1}, false},
		{"selected", []string{"-A", "-l", "app = web"}, func(a *pagedAPI) {
			a.list(shopPods+"?app=web", barePod("shop", 1), barePod("shop", 2))
			a.list(optedInPods+",app=web", barePod("quiet", 0))
			a.list(allSets + "?pillion.dev/inject=enabled,app=web")
		}, map[string]int{"shop": 2, "quiet": 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newPagedAPI(20)
			c.edit(a)
			r, code := a.report(t, c.args...)
			got := map[string]int{}
			for _, ns := range r.Namespaces {
				got[ns.Namespace] = ns.Pods
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("pods by namespace: %v, want %v", got, c.want)
			}
			notes := []string{
				"Shadow only (pillion.dev/inject: shadow), so nothing is injected: trial.",
				`Nothing is injected in namespaces with an invalid label pillion.dev/inject; it must be enabled, disabled or shadow: typo ("enable").`,
			}
			for _, note := range notes { // of namespaces that are named there is more to say
				if said := slices.Contains(r.Notes, note); said == c.named {
					t.Errorf("the notes are %q", r.Notes)
				}
			}
			outside := map[string]string{"shop": "", "quiet": status.Unlabelled, "trial": status.Shadowed, "typo": status.UnknownLabel}
			for name := range got {
				if i := slices.IndexFunc(r.Outside, func(o status.Outside) bool { return o.Namespace == name }); c.named && (i >= 0) != (outside[name] != "") ||
					i >= 0 && (!c.named || r.Outside[i].Code != outside[name]) {
					t.Errorf("outside: %+v", r.Outside)
				}
			}
			if c.named != (r.Unlabelled == 0) {
				t.Errorf("%d more namespaces could opt in", r.Unlabelled)
			}
			if len(got) == 1 && got["trial"] > 0 && (r.Pods.NotWanted != r.Pods.Pods || code != exitOK) {
				t.Errorf("shadowed pods are counted as %+v, exit code %d", r.Pods, code)
			}
		})
	}
}

// TestStatusExpired checks that a list with expired pages is read again, and counted once.
func TestStatusExpired(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(1200)
	a.expires[shopPods], a.expires[shopSets] = 1, 1
	r, _ := a.report(t, "shop")
	if r.Pods.Pods != 1200 || len(r.Owners) != 120 {
		t.Errorf("%d pods of %d owners, want 1200 of 120", r.Pods.Pods, len(r.Owners))
	}
	a = newPagedAPI(1200)
	a.expires[shopPods] = 2
	if code, stdout, stderr := a.status(t, "shop"); code != exitProblem || stdout != "" || stderr == "" {
		t.Errorf("expired twice: exit code %d, %q, %q", code, stdout, stderr)
	}
}

// TestStatusForbidden checks that each resource that may not be read is one line of the report, and
// that unnecessary rights are not required.
func TestStatusForbidden(t *testing.T) {
	t.Parallel()
	policies := "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
	for _, c := range []struct {
		name, path string
		args       []string
		stdout     string
		stderr     string // else
	}{
		{"namespaces", "/api/v1/namespaces", []string{"-A"}, "", "pillion: you are not allowed to list namespaces: ask for the verb list on the resource namespaces, or name those that you are allowed to read: pillion status NAMESPACE...\n"},
		{"namespace", "/api/v1/namespaces/shop", []string{"shop", "trial"}, "Problem: Some pods in the namespace shop are not counted, because you are not allowed to get\nnamespaces: ask for the verb get on the resource namespaces there.", ""},
		{"pods", shopPods, []string{"-A"}, "Problem: Some pods in the namespace shop are not counted, because you are not allowed to list pods:\nask for the verb list", ""},
		{"pods that opted in", optedInPods, []string{"-A"}, "Problem: Some pods are not counted, because you are not allowed to list pods: ask for the verb list", ""},
		{"no such namespace", "", []string{"shap"}, "", "pillion: there is no namespace shap\n"},
		{"ReplicaSets", shopSets, []string{"-A"}, "Deployment/web-0 in the namespace shop", ""},
		{"ReplicaSets, the note", shopSets, []string{"-A"}, "Note: You are not allowed to list replicasets in the namespace shop, so owners are guessed", ""},
		{"webhooks", webhooksPath, []string{"-A"}, "Note: Other webhooks are not listed: you are not allowed to list mutatingwebhookconfigurations.", ""},
		{"policies", policies, []string{"-A"}, "Note: Policies that change pods are not listed: you are not allowed to list\nmutatingadmissionpolicies and", ""},
		{"validating webhooks", policiesPath + "validatingwebhookconfigurations", []string{"-A"}, "Note: Other validating webhooks are not listed: you are not allowed to list\nvalidatingwebhookconfigurations.", ""},
		{"validating policies", policiesPath + "validatingadmissionpolicies", []string{"-A"}, "Note: Policies that validate pods are not listed: you are not allowed to list\nvalidatingadmissionpolicies and", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newPagedAPI(20)
			a.forbids[c.path] = 1
			code, stdout, stderr := a.status(t, c.args...)
			if code != exitProblem || stderr != cli.Fold(nil, c.stderr) || !strings.Contains(stdout, c.stdout) || c.stderr != "" && stdout != "" {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// TestStatusLoops checks the warning about a webhook that waits for Pillion while Pillion waits for
// it.
func TestStatusLoops(t *testing.T) {
	t.Parallel()
	const guard = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: guard}, webhooks: [{name: guard.example.com,
rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}], clientConfig: {service: {namespace: shop, name: guard}}}]}`
	replace := func(old, by string) string { return strings.Replace(guard, old, by, 1) }
	for name, c := range map[string]struct {
		guard  string
		forbid string
		want   bool
	}{
		"each other":             {guard: guard, want: true},
		"not opted in":           {guard: replace("namespace: shop", "namespace: quiet")},
		"not asked about ours":   {guard: replace("clientConfig", "namespaceSelector: {matchLabels: {team: a}}, clientConfig")},
		"lets through":           {guard: replace("clientConfig", "failurePolicy: Ignore, clientConfig")},
		"not in the cluster":     {guard: replace("service: {namespace: shop, name: guard}", `url: "https://guard.example.com"`)},
		"ours is not to be seen": {guard: guard, forbid: "/api/v1/namespaces/pillion-system"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := explainAPI(t)
			a.objects["/api/v1/namespaces/pillion-system"] = thing("v1", "Namespace", "", "pillion-system", map[string]any{"labels": map[string]any{"kubernetes.io/metadata.name": "pillion-system"}})
			a.list(policiesPath+"validatingwebhookconfigurations", a.objects[policiesPath+"validatingwebhookconfigurations/pillion"].(map[string]any), yamlObject(t, c.guard))
			a.forbids[c.forbid] = 9
			_, stdout, stderr := a.status(t, "shop")
			said := strings.Contains(stdout, cli.Fold(nil, "Note: The webhook guard.example.com of guard and Pillion are called for each other's pods"))
			if said != c.want || stderr != "" {
				t.Errorf("warned: %t\n%s%s", said, stdout, stderr)
			}
		})
	}
}

// TestStatusNames checks that each line is a set of arguments for kubectl rollout restart.
func TestStatusNames(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := newPagedAPI(15).status(t, "shop", "-o", "name")
	if want := "-n shop deployment.apps/web-0\n-n shop deployment.apps/web-1\n"; code != exitOK || stdout != want || stderr != "" {
		t.Errorf("exit code %d, %q, %q; want %q", code, stdout, stderr, want)
	}
}

// TestStatusExit checks the exit code for each kind of result.
func TestStatusExit(t *testing.T) {
	t.Parallel()
	injected := func(revision string) func(int) map[string]any {
		return func(i int) map[string]any {
			pod := barePod("shop", i)
			pod["metadata"].(map[string]any)["annotations"] = map[string]any{"agent.pillion.dev/injected": revision}
			pod["spec"].(map[string]any)["initContainers"] = []any{map[string]any{"name": "agent", "image": "agent:1", "restartPolicy": "Always"}}
			return pod
		}
	}
	r, _ := newPagedAPI(0).report(t, "-A")
	current := r.Templates[0].Revision
	for _, c := range []struct {
		name string
		pod  func(int) map[string]any
		args []string
		want int
	}{
		{"current", injected(current), []string{"--fail-on-outdated"}, exitOK},
		{"outdated", injected("0123456789ab"), nil, exitOK},
		{"outdated, and it matters", injected("0123456789ab"), []string{"--fail-on-outdated"}, exitProblem},
		{"missing", func(i int) map[string]any { return barePod("shop", i) }, nil, exitProblem},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newPagedAPI(3)
			a.lists[shopPods] = c.pod
			if code, stdout, stderr := a.status(t, append(c.args, "shop")...); code != c.want {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.want, stdout, stderr)
			}
		})
	}
}

// TestStatusWatch checks that the command repeats its report until it is interrupted, also after a
// failure.
func TestStatusWatch(t *testing.T) {
	a := newPagedAPI(3)
	looks := 0
	a.onPage = func(path string, _ *http.Request) {
		if path != shopPods {
			return
		}
		switch looks++; looks {
		case 1:
			a.forbids["/api/v1/namespaces/shop"] = 1
		case 2:
			must(t, syscall.Kill(os.Getpid(), syscall.SIGINT)) // which the command listens for
		}
	}
	code, stdout, stderr := a.status(t, "shop", "--watch", "--interval", "1s", "-o", "json")
	if code != exitOK || !strings.Contains(stdout, "you are not allowed to get namespaces") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	lines := slices.Collect(strings.Lines(stdout))
	if len(lines) < 1 || !json.Valid([]byte(lines[0])) {
		t.Errorf("it writes %q", stdout)
	}
}

// TestStatusWatchText checks that reports follow each other with their times if the output is not a
// terminal.
func TestStatusWatchText(t *testing.T) {
	a := newPagedAPI(3)
	looks := 0
	a.onPage = func(path string, _ *http.Request) {
		if path != shopPods {
			return
		}
		if looks++; looks == 3 {
			must(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		}
	}
	code, stdout, stderr := a.status(t, "shop", "--watch", "--interval", "1s")
	if n := len(regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\n3 pods in 1 namespace, of which 3 should be injected: 3 missing\.$`).FindAllString(stdout, -1)); code != exitOK || n < 2 || strings.Contains(stdout, "\x1b") {
		t.Errorf("exit code %d, %d reports\n%s%s", code, n, stdout, stderr)
	}
}
