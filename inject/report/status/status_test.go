// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// world has the objects of a case.
type world struct {
	namespaces []metav1.PartialObjectMetadata
	pods       []json.RawMessage
	owners     map[string]map[string]status.Owner // kind, name
	workloads  map[string][]byte                  // kind/name
	own        admissionregistrationv1.MutatingWebhookConfiguration
	mutation   status.Mutation
	validation status.Validation
}

func (w *world) add(t *testing.T, text []byte) {
	t.Helper()
	var object metav1.PartialObjectMetadata
	must(t, json.Unmarshal(text, &object))
	switch object.Kind {
	case "Namespace":
		w.namespaces = append(w.namespaces, object)
	case "Pod":
		w.pods = append(w.pods, text)
	case "Deployment", "StatefulSet", "DaemonSet":
		w.workloads[object.Kind+"/"+object.Name] = text
	case "ReplicaSet", "Job":
		o := metav1.GetControllerOf(&object)
		if w.owners[object.Kind] == nil {
			w.owners[object.Kind] = map[string]status.Owner{}
		}
		w.owners[object.Kind][object.Name] = status.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
	case "MutatingWebhookConfiguration":
		w.mutation.Webhooks = append(w.mutation.Webhooks, *decode[admissionregistrationv1.MutatingWebhookConfiguration](t, text))
	case "MutatingAdmissionPolicy":
		w.mutation.Policies = append(w.mutation.Policies, *decode[admissionregistrationv1.MutatingAdmissionPolicy](t, text))
	case "MutatingAdmissionPolicyBinding":
		w.mutation.Bindings = append(w.mutation.Bindings, *decode[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, text))
	case "ValidatingWebhookConfiguration":
		w.validation.Webhooks = append(w.validation.Webhooks, *decode[admissionregistrationv1.ValidatingWebhookConfiguration](t, text))
	case "ValidatingAdmissionPolicy":
		w.validation.Policies = append(w.validation.Policies, *decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, text))
	case "ValidatingAdmissionPolicyBinding":
		w.validation.Bindings = append(w.validation.Bindings, *decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, text))
	default:
		t.Fatalf("a case has no %q", object.Kind)
	}
}

func decode[T any](t *testing.T, text []byte) *T {
	t.Helper()
	typed := new(T)
	must(t, json.Unmarshal(text, typed))
	return typed
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// report counts the pods of all namespaces of the world.
func (w *world) report(t *testing.T, set *templates.Set) *status.Report {
	t.Helper()
	injector := inject.New(set)
	for i := range w.mutation.Webhooks {
		if w.mutation.Webhooks[i].Name == w.mutation.Own {
			w.own = w.mutation.Webhooks[i]
		}
	}
	r := status.NewReport(set)
	for _, ns := range w.namespaces {
		c := status.NewCount(injector, status.Scope{
			Namespace: request.Namespace{Name: ns.Name, Labels: ns.Labels, Annotations: ns.Annotations, Known: true},
			Past:      explain.Past{OptedIn: status.OptedIn(ns.ManagedFields), Installed: w.own.CreationTimestamp.Time},
			Entries:   explain.MutatingEntries(&w.own), Mutated: w.mutation.Changes(ns.Labels), Plans: true, Resizes: true,
		})
		for _, pod := range w.pods {
			if decode[metav1.PartialObjectMetadata](t, pod).Namespace == ns.Name {
				must(t, c.Add(pod))
			}
		}
		for kind, by := range w.owners {
			c.ReplaceOwners(kind, by)
		}
		if w.owners == nil {
			c.GuessDeployments()
		}
		w.consider(t, c)
		r.Add(c)
	}
	r.Mutators = append(r.Mutators, w.mutation.Mutators(r.Labels())...)
	r.Validators = w.validation.Validators(r.Labels())
	r.Finish()
	return r
}

// consider counts the pods with the owners of the case, and with plain owners for the others.
func (w *world) consider(t *testing.T, c *status.Count) {
	t.Helper()
	must(t, c.PlanOthers())
	room := func(map[string]string, []byte, int) string { return "" }
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		for _, name := range c.RestartCandidates(kind) {
			object, ok := w.workloads[kind+"/"+name]
			if !ok {
				object = fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":%q,"metadata":{"name":%q},"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:1"}]}}}}`, kind, name)
			}
			must(t, c.ConsiderRestart(object, room))
		}
	}
}

// TestCases runs the cases. A case is one file with templates (*.template.yaml), the cluster's
// objects (cluster.yaml), and the report as text, as JSON and as names. REVISION in the cluster is
// replaced with the first template's revision. If there is a file "guess", ReplicaSets cannot be
// read.
func TestCases(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		r, revision := run(t, archive)
		checkText(t, r)
		checkColors(t, r)
		text, err := json.MarshalIndent(r, "", "  ")
		must(t, err)
		want := []txtar.File{
			{Name: "want.txt", Data: []byte(r.Text(100, false))},
			{Name: "want.names", Data: []byte(strings.Join(append(r.Restarts(), ""), "\n"))},
			{Name: "want.json", Data: append(text, '\n')},
		}
		for i := range want {
			want[i].Data = []byte(strings.ReplaceAll(string(want[i].Data), revision, "REVISION")) // not nil
		}
		return want
	})
}

func run(t *testing.T, archive *txtar.Archive) (*status.Report, string) {
	t.Helper()
	w := &world{owners: map[string]map[string]status.Owner{}, workloads: map[string][]byte{}, mutation: status.Mutation{Own: "pillion"}, validation: status.Validation{Own: "pillion"}}
	var files []templates.File
	var cluster []byte
	for _, f := range archive.Files {
		switch {
		case strings.HasSuffix(f.Name, ".template.yaml"):
			files = append(files, templates.File{Path: f.Name, Data: f.Data})
		case f.Name == "cluster.yaml":
			cluster = f.Data
		case f.Name == "guess":
			w.owners = nil
		case !strings.HasPrefix(f.Name, "want."):
			t.Fatalf("a case has no file %q", f.Name)
		}
	}
	set, err := templates.Compile(files...)
	must(t, err)
	revision := set.Templates[0].Revision
	for doc := range bytes.SplitSeq(bytes.ReplaceAll(cluster, []byte("REVISION"), []byte(revision)), []byte("---\n")) {
		text, err := utilyaml.ToJSON(doc)
		must(t, err)
		w.add(t, text)
	}
	return w.report(t, set), revision
}

// checkText checks that at every width every line fits, except for commands and single long words, and
// that no line ends in a space. If tables have columns at both widths, the words are the same.
func checkText(t *testing.T, r *status.Report) {
	t.Helper()
	const table = 100 // the width at which tables have columns
	want := strings.Fields(r.Text(table, false))
	for _, width := range []int{40, 41, 60, 79, 80, table, 133, 1000} {
		text := r.Text(width, false)
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			command := regexp.MustCompile(`^ +(kubectl|pillion|xargs) `).MatchString(line)
			if utf8.RuneCountInString(line) > width && strings.Contains(strings.TrimSpace(line), " ") && !command || strings.HasSuffix(line, " ") || strings.ContainsAny(line, "\t\x1b") {
				t.Errorf("a line does not fit in %d columns: %q", width, line)
			}
		}
		if got := strings.Fields(text); width >= 79 && !slices.Equal(got, want) {
			t.Errorf("in %d columns it says\n%s\nand in %d\n%s", width, text, table, r.Text(table, false))
		}
	}
}

// checkColors checks that colors and bars only add to the text, and that bars fit.
func checkColors(t *testing.T, r *status.Report) {
	t.Helper()
	for _, width := range []int{40, 79, 100, 200} {
		colored := r.Text(width, true)
		text := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored, "")
		for line := range strings.Lines(text) {
			if strings.Contains(line, "█") && (utf8.RuneCountInString(strings.TrimSpace(line)) > width || strings.Count(line, "█") != 10) {
				t.Errorf("a bar does not fit in %d columns: %q", width, line)
			}
		}
		if text = regexp.MustCompile(" *█+").ReplaceAllString(text, ""); text != r.Text(width, false) {
			t.Errorf("in %d columns, it says with colors\n%s\nwithout\n%s", width, colored, r.Text(width, false))
		}
	}
}

func agent(t *testing.T) *templates.Set {
	t.Helper()
	set, err := templates.Compile(templates.File{Path: "a.yaml", Data: []byte(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod: {spec: {initContainers: [{name: agent, image: "agent:1", restartPolicy: Always}]}}
`)})
	must(t, err)
	return set
}

// TestBounded checks that memory does not grow with pods that all differ.
func TestBounded(t *testing.T) {
	t.Parallel()
	set := agent(t)
	size := func(pods int) (int, *status.Report) {
		c := status.NewCount(inject.New(set), status.Scope{Namespace: request.Namespace{Name: "shop"}, Unknown: true})
		for i := range pods {
			must(t, c.Add(fmt.Appendf(nil, `{"metadata":{"name":"p-%06d","annotations":{"agent.pillion.dev/injected":"r%06d","agent.pillion.dev/p%06d":""}},
				"spec":{"initContainers":[{"name":"agent","image":"agent:0"}],"containers":[{"name":"web"}]}}`, i, i, i)))
		}
		r := status.NewReport(set)
		r.Add(c)
		r.Finish()
		text, err := json.Marshal(r)
		must(t, err)
		return len(text), r
	}
	few, _ := size(100)
	many, r := size(2000)
	if many > few+100 { // longer numbers
		t.Errorf("a report about 100 pods has %d bytes, one about 2000 has %d", few, many)
	}
	sum := 0
	for _, reason := range r.Owners[0].Reasons {
		sum += reason.Pods
	}
	if sum != 2000 || r.Pods.Outdated != 2000 {
		t.Errorf("reasons are for %d pods, %d are outdated, want 2000", sum, r.Pods.Outdated)
	}
}

// TestSummaryOfOne checks that the summary about a single pod without a sidecar is not "none of the
// pods".
func TestSummaryOfOne(t *testing.T) {
	t.Parallel()
	set := agent(t)
	c := status.NewCount(inject.New(set), status.Scope{Namespace: request.Namespace{Name: "shop"}, Unknown: true})
	must(t, c.Add([]byte(`{"metadata":{"name":"web","labels":{"pillion.dev/inject":"disabled"}},"spec":{"containers":[{"name":"web"}]}}`)))
	r := status.NewReport(set)
	r.Add(c)
	r.Finish()
	if want := "The only pod in 1 namespace gets no sidecar."; r.Summary != want {
		t.Errorf("the summary is %q, want %q", r.Summary, want)
	}
}

// TestOptedIn checks that the managed fields show when the label was set.
func TestOptedIn(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	fields := func(text string) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Time: &at, FieldsV1: &metav1.FieldsV1{}}
		must(t, e.FieldsV1.UnmarshalJSON([]byte(text)))
		return e
	}
	labelled := fields(`{"f:metadata":{"f:labels":{"f:pillion.dev/inject":{}}}}`)
	if got := status.OptedIn([]metav1.ManagedFieldsEntry{{}, fields(`{"f:metadata":{"f:labels":{"f:other":{}}}}`), labelled}); !got.Equal(at.Time) {
		t.Errorf("got %s, want %s", got, at)
	}
	if got := status.OptedIn([]metav1.ManagedFieldsEntry{fields(`{"f:spec":{}}`), fields(`[]`)}); !got.IsZero() {
		t.Errorf("got %s, want no time", got)
	}
}
