// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/report/diff"
)

// diff runs the command against the API, with a template that is like the one in use, except for pairs of strings.
func (a *pagedAPI) diff(t *testing.T, want int, edits []string, args ...string) (r diff.Report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "new.yaml")
	write(t, file, strings.NewReplacer(edits...).Replace(agentTemplate))
	var out, errs bytes.Buffer
	code := run(append([]string{"diff", "--kubeconfig", a.kubeconfig(t), "-f", file, "-o", "json"}, args...), nil, &out, &errs)
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != want {
		t.Fatalf("exit code %d, want %d, %v: %s%s", code, want, err, &out, &errs)
	}
	return r
}

// newImage changes the template so that pods can change in place.
var newImage = []string{"agent:1", "agent:2"}

// TestDiffLarge checks that 10,000 pods are read in pages, that a page that is too old starts the list again, and
// that pods are never all in memory.
func TestDiffLarge(t *testing.T) {
	const pods, limit = 10_000, 32 << 20
	a := newPagedAPI(pods)
	a.expires[shopPods], a.expires[shopSets], a.expires[shopDeployments] = 1, 1, 1
	var most, first uint64
	a.onPage = func(path string, r *http.Request) {
		if got := r.URL.Query().Get("limit"); got != "500" {
			t.Errorf("%s is asked for with the limit %q, want 500", path, got)
		}
		if path == shopPods || path == shopDeployments {
			var stats runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&stats)
			if first == 0 {
				first = stats.HeapAlloc
			}
			most = max(most, stats.HeapAlloc)
		}
	}
	r := a.diff(t, exitProblem, newImage, "-A")
	t.Logf("%d MB at most, %d at the first page", most>>20, first>>20)
	want := diff.Count{Pods: pods, Owners: pods / 10}
	if r.Compared != want || r.Changed != want || len(r.Templates) != 1 || r.Templates[0].InPlace != want || len(r.Diffs) != 1 || len(r.Diffs[0].Owners) != want.Owners {
		t.Errorf("compared %+v, changed %+v, %+v", r.Compared, r.Changed, r.Templates)
	}
	if most > first+limit {
		t.Errorf("%d MB are held, and %d at the first page", most>>20, first>>20)
	}
}

// TestDiffOwners checks which pods count for which owner.
func TestDiffOwners(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(0)
	pod := func(name, ownerKind, owner, more string) map[string]any {
		owners := ""
		if owner != "" {
			owners = `, ownerReferences: [{apiVersion: ` + ownerKind + `, name: ` + owner + `, uid: u, controller: true}]`
		}
		return yamlObject(t, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`, namespace: shop`+owners+more+`}, spec: {containers: [{name: web, image: "web:1"}]}}`)
	}
	a.list(shopPods,
		pod("a", "apps/v1, kind: ReplicaSet", "web-1", ""), pod("b", "apps/v1, kind: ReplicaSet", "web-2", ""), // one Deployment
		pod("c", "example.com/v1, kind: Clone", "set", ""), pod("d", "example.com/v1, kind: Clone", "set", ""),
		pod("e", "batch/v1, kind: Job", "night-1", ""), pod("f", "batch/v1, kind: Job", "once", ""),
		pod("g", "", "", ""), pod("h", "apps/v1, kind: StatefulSet", "gone", ""),
		pod("i", "", "", `, deletionTimestamp: "2026-01-01T00:00:00Z"`), pod("j", "", "", `, annotations: {kubernetes.io/config.mirror: x}`),
		pod("k", "", "", `, annotations: {agent.pillion.dev/injected: "000000000000"}`)) // by another revision
	made := func(apiVersion, kind, name, owner string) map[string]any {
		o := thing(apiVersion, kind, "shop", name, nil)
		if owner != "" {
			of, name, _ := strings.Cut(owner, "/")
			o = thing(apiVersion, kind, "shop", o["metadata"].(map[string]any)["name"].(string), map[string]any{"owner": []string{apiVersion, of, name}})
		}
		template := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}}}
		o["spec"] = map[string]any{"template": template}
		if kind == "CronJob" {
			o["spec"] = map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": template}}}
		}
		return o
	}
	a.list(shopSets, made("apps/v1", "ReplicaSet", "web-1", "Deployment/web"), made("apps/v1", "ReplicaSet", "web-2", "Deployment/web"), made("apps/v1", "ReplicaSet", "old", "Deployment/web"))
	a.list(shopDeployments, made("apps/v1", "Deployment", "web", ""), made("apps/v1", "Deployment", "idle", ""))
	a.list("/apis/batch/v1/namespaces/shop/jobs", made("batch/v1", "Job", "night-1", "CronJob/night"), made("batch/v1", "Job", "once", ""), made("batch/v1", "Job", "ended", ""))
	a.list("/apis/batch/v1/namespaces/shop/cronjobs", made("batch/v1", "CronJob", "night", ""))
	r := a.diff(t, exitProblem, newImage, "-n", "shop")
	got := map[string]int{}
	for _, o := range r.Owners {
		got[o.String()] = o.Pods
	}
	for name, n := range map[string]int{"Deployment/web": 2, "Deployment/idle": 0, "Clone/set": 2, "CronJob/night": 1, "Job/once": 1, "Pod/g": 1} {
		if pods, ok := got[name]; !ok || pods != n {
			t.Errorf("%s counts %d pods, want %d", name, pods, n)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("these count too: %v", got)
	}
	for _, want := range []string{"Not compared: 1 pod of statefulsets, for example of shop/StatefulSet/gone", "What the pod shop/k was before the injection is unknown"} {
		if !slices.ContainsFunc(r.Notes, func(note string) bool { return strings.HasPrefix(note, want) }) {
			t.Errorf("no note begins with %q: %q", want, r.Notes)
		}
	}
}

// TestDiffElsewhere checks that pods that opted in themselves are compared too, and those of other namespaces are not.
func TestDiffElsewhere(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(20)
	pod := thing("v1", "Pod", "quiet", "self", map[string]any{"labels": map[string]any{"pillion.dev/inject": "enabled"}})
	pod["spec"] = barePod("quiet", 0)["spec"]
	a.list("/api/v1/pods?pillion.dev/inject=enabled", pod)
	if r := a.diff(t, exitProblem, newImage, "-A"); r.Changed != (diff.Count{Pods: 21, Owners: 3}) {
		t.Errorf("%+v change, of %+v", r.Changed, r.Compared)
	}
	if r := a.diff(t, exitOK, newImage, "-n", "trial"); r.Changed.Owners != 0 {
		t.Errorf("in a shadow namespace, %+v change", r.Changed)
	}
}

// TestDiffInstalled checks which templates are compared with those of the cluster.
func TestDiffInstalled(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(10)
	r := a.diff(t, exitOK, nil, "-A")
	if len(r.Templates) != 0 || !slices.ContainsFunc(r.Notes, func(note string) bool {
		return strings.HasPrefix(note, "The template agent is in a mounted file now (configmap/")
	}) {
		t.Errorf("the same template: %+v, %q", r.Templates, r.Notes)
	}
	if r := a.diff(t, exitProblem, []string{"name: agent}", "name: other}"}, "-A"); len(r.Templates) != 1 || r.Templates[0].From != "" {
		t.Errorf("another template: %+v", r.Templates)
	}
	if r := a.diff(t, exitProblem, []string{"name: agent}", "name: next}", "spec:\n", "spec:\n  replaces: agent\n", "agent:1", "agent:2"}, "-A"); len(r.Templates) != 2 || r.Changed.Owners == 0 {
		t.Errorf("a template that replaces one of the cluster: %+v", r.Templates)
	}
	if r := a.diff(t, exitOK, []string{"name: agent}", "name: next}", "spec:\n", "spec:\n  replaces: gone\n"}, "-A"); !slices.ContainsFunc(r.Notes, func(note string) bool {
		return strings.Contains(note, "there is no template gone to replace")
	}) {
		t.Errorf("a template that replaces none: %q", r.Notes)
	}
	a = explainAPI(t) // with the Deployment of Pillion
	file := filepath.Join(t.TempDir(), "old.yaml")
	write(t, file, strings.NewReplacer(newImage...).Replace(agentTemplate))
	for command, want := range map[string]int{"status": exitProblem, "diff -f " + file: exitTrouble} {
		var out, errs bytes.Buffer
		code := run(append(strings.Fields(command), "--kubeconfig", a.kubeconfig(t), "--templates", file), nil, &out, &errs)
		if text := strings.Join(strings.Fields(errs.String()), " "); code != want || out.Len() > 0 || !strings.Contains(text, "are not those that Pillion uses in this cluster") {
			t.Errorf("%s: exit code %d, want %d: %s%s", command, code, want, &out, text)
		}
	}
}
