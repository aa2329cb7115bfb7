// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/report/status"
)

const shopStateful = "/apis/apps/v1/namespaces/shop/statefulsets"

// labelled is an object with these labels and annotations in its metadata.
func labelled(t *testing.T, kind, namespace, name, metadata string) map[string]any {
	t.Helper()
	apiVersion, spec := "apps/v1", "template: {spec: {containers: [{name: a, image: b}]}}"
	if kind == "CronJob" {
		apiVersion = "batch/v1"
		spec = "jobTemplate: {metadata: {annotations: {agent.pillion.dev/level: debug}}, spec: {" + spec + "}}"
	}
	return yamlObject(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s, %s}, spec: {%s}}", apiVersion, kind, name, namespace, metadata, spec))
}

// TestStatusMisplaced checks that status reports workloads with keys at which Pillion does not read them,
// including workloads that would opt in in another namespace. If a kind cannot be read, there is a note.
func TestStatusMisplaced(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(10)
	optIn := "labels: {pillion.dev/inject: enabled}"
	made := labelled(t, "ReplicaSet", "shop", "web-0-5f7", "annotations: {pillion.dev/templates: agent}")
	made["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web-0", "uid": "u", "controller": true}}
	a.list(shopDeployments, labelled(t, "Deployment", "shop", "web-0", "annotations: {pillion.dev/templates: agent}"), labelled(t, "Deployment", "shop", "api", "labels: {app: api}"))
	a.list(shopSets, made)
	a.list(shopStateful, labelled(t, "StatefulSet", "shop", "db", "labels: {pillion.dev/inject: disabled}"))
	a.list(shopCronJobs, labelled(t, "CronJob", "shop", "nightly", "labels: {app: web}"))
	for _, kind := range []string{"deployments", "statefulsets", "daemonsets"} {
		a.list("/apis/apps/v1/" + kind + "?pillion.dev/inject=enabled")
	}
	a.list("/apis/batch/v1/cronjobs?pillion.dev/inject=enabled")
	a.list("/apis/apps/v1/deployments?pillion.dev/inject=enabled", labelled(t, "Deployment", "quiet", "web", optIn), labelled(t, "Deployment", "off", "web", optIn), labelled(t, "Deployment", "shop", "web", optIn))
	want := []string{
		"shop: CronJob/nightly has agent.pillion.dev/level in spec.jobTemplate.metadata; Pillion reads spec.jobTemplate.spec.template.metadata",
		"shop: Deployment/web-0 has pillion.dev/templates in metadata; Pillion reads spec.template.metadata",
		"shop: StatefulSet/db has pillion.dev/inject in metadata; Pillion reads spec.template.metadata",
	}
	elsewhere := append([]string{"quiet: Deployment/web has pillion.dev/inject in metadata; Pillion reads spec.template.metadata"}, want...)
	wantMisplaced := func(want []string, args ...string) (report status.Report) {
		t.Helper()
		_, stdout, stderr := a.status(t, append(args, "-o", "json")...)
		must(t, json.Unmarshal([]byte(stdout), &report))
		var got []string
		for _, m := range report.Misplaced {
			got = append(got, m.Namespace+": "+m.Why)
		}
		if !slices.Equal(got, want) || stderr != "" {
			t.Errorf("%q: got %q, want %q; %s", args, got, want, stderr)
		}
		return report
	}
	if r := wantMisplaced(elsewhere, "-A"); !strings.Contains(r.Summary, "; 4 workloads have labels or annotations in the wrong place") {
		t.Errorf("the summary is %q", r.Summary)
	}
	wantMisplaced(want, "shop")
	wantMisplaced(nil, "shop", "-l", "app=other")
	_, text, _ := a.status(t, "shop")
	if !strings.Contains(text, "Misplaced in the namespace shop: Deployment/web-0 has pillion.dev/templates in metadata;") {
		t.Error(text)
	}
	a.forbids[shopCronJobs], a.forbids["/apis/apps/v1/deployments?pillion.dev/inject=enabled"] = 1, 1
	r := wantMisplaced(want[1:], "-A")
	for _, note := range []string{"You are not allowed to list cronjobs in the namespace shop", "You are not allowed to list deployments in all namespaces"} {
		if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, note) }) {
			t.Errorf("no note %q in %q", note, r.Notes)
		}
	}
}
