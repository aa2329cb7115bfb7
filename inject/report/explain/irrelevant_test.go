// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// manyTemplates are 33: one is a default, one is for Windows, the others are on request.
func manyTemplates(t testing.TB) *inject.Injector {
	t.Helper()
	var files []templates.File
	for i := range 33 {
		extra := ""
		switch i {
		case 7:
			extra = "\n  default: true"
		case 8:
			extra = "\n  default: true\n  match: {os: windows}"
		}
		text := fmt.Sprintf(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent-%02d}
spec:%s
  pod: {spec: {initContainers: [{name: agent-%02d, image: "agent:1", restartPolicy: Always}]}}
`, i, extra, i)
		files = append(files, templates.File{Path: fmt.Sprintf("%02d.yaml", i), Data: []byte(text)})
	}
	set, err := templates.Compile(files...)
	if err != nil {
		t.Fatal(err)
	}
	return inject.New(set)
}

func explainNewPod(t testing.TB, i *inject.Injector, pod string, ns request.Namespace) *explain.Report {
	t.Helper()
	r, err := explain.New(i, explain.Subject{
		Object:  explain.Object{Kind: "Deployment", Name: "web", Namespace: "shop"},
		Request: inject.Request{Operation: "CREATE", Namespace: ns, Object: []byte(pod)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOthers checks that templates that do not apply take one line, unless the pod requests them.
// Nothing else is omitted, and with all details nothing at all.
func TestOthers(t *testing.T) {
	t.Parallel()
	i := manyTemplates(t)
	shop := request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true}
	pod := func(metadata string) string {
		return `{"metadata":{` + metadata + `},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`
	}
	for name, row := range map[string]struct {
		pod  string
		ns   request.Namespace
		line string
		full int // the number of templates that are shown in full
	}{
		"on request only": {pod(""), shop, "32 other templates do not apply: 31 not_requested (agent-00, agent-01, agent-02, agent-03, agent-04 and 26 more), 1 wrong_os (agent-08); --all shows why", 1},
		"requested": {pod(`"annotations":{"pillion.dev/templates":"agent-08,agent-09"}`), shop, "30 other templates do not apply (not_requested: the pod's annotation pillion.dev/templates does not name it): " +
			"agent-00, agent-01, agent-02, agent-03, agent-04 and 25 more", 3}, // the list omits the default, which is shown in full
		"no defaults": {pod(`"annotations":{"pillion.dev/templates":""}`), shop, "33 templates do not apply (not_requested: the pod's annotation pillion.dev/templates does not name it): " +
			"agent-00, agent-01, agent-02, agent-03, agent-04 and 28 more", 0},
		"opted out": {pod(`"labels":{"pillion.dev/inject":"disabled"},"annotations":{"pillion.dev/templates":"agent-08"}`), shop, "33 templates do not apply (pod_opted_out: the pod has the label pillion.dev/inject: disabled): " +
			"agent-00, agent-01, agent-02, agent-03, agent-04 and 28 more", 0},
	} {
		r := explainNewPod(t, i, row.pod, row.ns)
		checkText(t, r)
		brief := strings.Join(strings.Fields(text(r, explain.Brief)), " ")
		if !strings.Contains(brief, row.line) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, brief, row.line)
		}
		if n := strings.Count(brief, " revision "); n != row.full {
			t.Errorf("%s: %d templates in full, want %d", name, n, row.full)
		}
		if n := strings.Count(text(r, explain.All), "\n  revision "); n != 33 {
			t.Errorf("%s: of all templates %d are there", name, n)
		}
		if n := strings.Count(text(r, explain.Brief), "\n"); n > 25 {
			t.Errorf("%s: %d lines", name, n)
		}
		if err := r.Only([]string{"agent-08", "agent-00"}); err != nil {
			t.Fatal(err)
		}
		if only := text(r, explain.Brief); strings.Count(only, "\n  revision ") != 2 || strings.Contains(only, "not apply") {
			t.Errorf("%s: of two templates\n%s", name, only)
		}
	}
	r := explainNewPod(t, i, pod(""), shop)
	if err := r.Only([]string{"agent-70"}); err == nil || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("an unknown template: %v", err)
	}
	if err := r.Only([]string{"zebra"}); err == nil || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("an unknown template: %v", err)
	}
}

func text(r *explain.Report, detail explain.Detail) string { return r.Text(100, false, detail) }

// TestNothingIsExplained checks that if a pod gets no template, the report has the reason for each
// default template, without a flag.
func TestNothingIsExplained(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("t", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: log}, spec: {default: true, pod: {spec: {containers: [{name: log, image: l}]}}}}
---
{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: auth}, spec: {pod: {spec: {containers: [{name: auth, image: a}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for spec, code := range map[string]string{`"hostNetwork":true`: "host_network", `"os":{"name":"windows"}`: "wrong_os"} {
		r, err := explain.New(inject.New(templates.NewSet(found)), explain.Subject{
			Object:  explain.Object{Kind: "Pod", Name: "x", Namespace: "shop"},
			Request: inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Known: true}, Object: []byte(`{"spec":{` + spec + `,"containers":[{"name":"web","image":"web:1"}]}}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Text(100, false, explain.Brief); !strings.Contains(got, "log: not injected") || !strings.Contains(got, "("+code+")") || !strings.Contains(got, "1 other template does not apply (not_requested") {
			t.Errorf("got\n%s", got)
		}
	}
}
