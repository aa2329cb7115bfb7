// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// setOf returns a set of templates. Each has the form "NAME" or "NAMESPACE/NAME", with a word for its content.
func setOf(t *testing.T, all map[string]string) *templates.Set {
	t.Helper()
	var text strings.Builder
	for id, content := range all {
		namespace, name, ok := strings.Cut(id, "/")
		kind, metadata := "SidecarTemplate", "{name: "+name+", namespace: "+namespace+"}"
		if !ok {
			kind, metadata = "ClusterSidecarTemplate", "{name: "+id+"}"
		}
		text.WriteString("---\napiVersion: pillion.dev/v1alpha1\nkind: " + kind + "\nmetadata: " + metadata + "\nspec: {default: true, pod: {spec: {initContainers: [{name: " +
			strings.ReplaceAll(id, "/", "-") + ", restartPolicy: Always, image: \"x\", args: [\"" + content + "\"]}]}}}\n")
	}
	set, err := templates.Compile(templates.File{Path: "t.yaml", Data: []byte(text.String())})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestApplied checks what becomes of the templates in use.
func TestApplied(t *testing.T) {
	t.Parallel()
	installed := map[string]string{"agent": "1", "other": "1", "shop/own": "1"}
	for _, c := range []struct {
		name    string
		files   map[string]string
		without []string
		want    string // the IDs, and a * for each that differs
		note    string
		err     string
	}{
		{name: "nothing", want: "agent other shop/own"},
		{name: "changed", files: map[string]string{"agent": "2"}, want: "agent* other shop/own"},
		{name: "new", files: map[string]string{"shop/more": "1"}, want: "agent other shop/more* shop/own"},
		{name: "removed", without: []string{"shop/own", "agent"}, want: "other"},
		{name: "takes precedence", files: map[string]string{"own": "1"}, want: "agent other own*", note: "Pillion would not use a template in t.yaml: the ClusterSidecarTemplate of this name takes precedence (t.yaml"},
		{name: "mistaken", without: []string{"agnet"}, err: "there is no template agnet; did you mean agent?"},
		{name: "unknown", without: []string{"something-else"}, err: "there is no template something-else to remove"},
		{name: "both", files: map[string]string{"agent": "2"}, without: []string{"agent"}, err: "the template agent is in the files, so --without cannot remove it"},
	} {
		from := setOf(t, installed)
		set, notes, err := Applied(from, setOf(t, c.files), c.without)
		if err != nil || c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		var got []string
		for _, p := range pairTemplates(from, set) {
			id := p.template().ID()
			if p.hasChanged() {
				id += "*"
			}
			if p.to != nil {
				got = append(got, id)
			}
		}
		if all := strings.Join(got, " "); all != c.want || (len(notes) > 0) != (c.note != "") || len(notes) > 0 && !strings.HasPrefix(notes[0], c.note) {
			t.Errorf("%s: %s, %q; want %s, %q", c.name, all, notes, c.want, c.note)
		}
	}
}

// compared returns a report about one workload, whose name and label are the given string.
func compared(t *testing.T, from, to *templates.Set, name string) *Report {
	t.Helper()
	fits, err := limits.NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	pod, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"app": name}}, "spec": map[string]any{"containers": []map[string]string{{"name": "web", "image": "web"}}}})
	if err != nil {
		t.Fatal(err)
	}
	c := New(inject.New(from), inject.New(to), fits)
	o, err := c.Compare(&Workload{
		Owner: Owner{"shop", "apps/v1", "Deployment", name}, Pods: 2,
		Request: inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Known: true}, Object: pod},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := c.NewReport()
	var all []*Outcome
	if o != nil {
		all = append(all, o)
	}
	r.Compare(Count{2, 1}, all)
	r.Finish()
	return r
}

// TestText checks that colors only add to the text, and that the text has no control characters.
func TestText(t *testing.T) {
	t.Parallel()
	r := compared(t, setOf(t, map[string]string{"agent": "1", "gone": "1"}), setOf(t, map[string]string{"agent": "2", "more": "1"}), "web\x1b[31m")
	r.Problems, r.Notes = []string{"x"}, []string{"y"}
	plain, colored := r.Text(100, false, 10), r.Text(100, true, 10)
	if stripped := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored, ""); stripped != plain {
		t.Errorf("with colors it says\n%s\nwithout\n%s", stripped, plain)
	}
	if strings.Contains(plain, "\x1b") || !strings.Contains(plain, `\u001b`) {
		t.Errorf("it has control characters:\n%s", plain)
	}
	for _, want := range []string{terminal.Green + `+    - "2"` + "\x1b[0m", terminal.Red + `-    - "1"` + "\x1b[0m", "  loses     2 pods", "  gets      2 pods", "  changes   2 pods of 1 workload, needs new pods: args of agent"} {
		if !strings.Contains(regexp.MustCompile(`(gets|loses) {5,6}\x1b\[[0-9]+m`).ReplaceAllStringFunc(colored, func(s string) string { return s[:len(s)-5] }), want) {
			t.Errorf("no %q in\n%s", want, colored)
		}
	}
}

// TestOne checks that each template has only its own changes.
func TestOne(t *testing.T) {
	t.Parallel()
	r := compared(t, setOf(t, map[string]string{"a": "1", "b": "1", "c": "1"}), setOf(t, map[string]string{"a": "2", "b": "1", "c": "2"}), "web")
	if len(r.Templates) != 2 {
		t.Fatalf("%d templates change: %+v", len(r.Templates), r.Templates)
	}
	for i, want := range []string{"args of a", "args of c"} {
		if causes := r.Templates[i].Causes; len(causes) != 1 || len(causes[0].Fields) != 1 || causes[0].Fields[0] != want {
			t.Errorf("%s: %+v, want %s", r.Templates[i].Template, causes, want)
		}
	}
}

// TestQuotaIsShared checks that the workloads of one namespace share what a quota has left, and that another namespace
// has its own.
func TestQuotaIsShared(t *testing.T) {
	t.Parallel()
	fits, err := limits.NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{}
	quota.Name = "memory"
	quota.Status.Hard = corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("100Mi")}
	quota.Status.Used = corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("70Mi")}
	requesting := func(memory string) []byte {
		return []byte(`{"spec":{"containers":[{"name":"web","image":"web:1","resources":{"requests":{"memory":"` + memory + `"}}}]}}`)
	}
	growth := fits.Replace(nil, limits.Limits{Quotas: []*corev1.ResourceQuota{quota}}, requesting("10Mi"), requesting("20Mi"))
	r := newReport(nil)
	var rejected []int
	for _, namespace := range []string{"shop", "shop", "other"} { // 30Mi are left for 10Mi more in each of two pods
		o := &Outcome{Owner: Owner{namespace, "apps/v1", "Deployment", "web"}, Pods: 2, replacement: growth}
		r.Compare(Count{2, 1}, []*Outcome{o})
		n := 0
		for _, e := range o.Effects {
			n += e.Pods
		}
		rejected = append(rejected, n)
	}
	if !slices.Equal(rejected, []int{0, 1, 0}) {
		t.Errorf("the quota rejects %d of the pods of each workload, want [0 1 0]", rejected)
	}
}
