// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

func TestMain(m *testing.M) { os.Exit(reviews.Main(m, os.Stdout)) }

// TestCases runs the cases. A case is one file with templates (*.template.yaml), the pod
// (pod.yaml), the namespace (namespace.yaml), webhook configurations (webhooks.yaml), and the
// report as text and as JSON. If there is a file "live", the pod exists.
func TestCases(t *testing.T) {
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		r := report(t, archive)
		checkText(t, r)
		for i := range r.Templates {
			r.Templates[i].Passed = slices.DeleteFunc(r.Templates[i].Passed, func(s inject.Step) bool { return !slices.Contains(shown, s.Code) })
		}
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want := []txtar.File{
			{Name: "want.txt", Data: []byte(r.Text(100, false, explain.Brief))},
			{Name: "want.verbose.txt", Data: []byte(r.Text(100, false, explain.Verbose))},
			{Name: "want.json", Data: append(text, '\n')},
		}
		for i := range want {
			want[i].Data = regexp.MustCompile(`\b[0-9a-f]{12}\b`).ReplaceAll(want[i].Data, []byte("REVISION"))
		}
		return want
	})
}

// shown are the rules that the cases list, if the pod passes them. The others are in
// testdata/passed.txt, so that a new rule does not change every case.
var shown = []inject.Code{inject.CodeNotOptedIn, inject.CodeNotRequested, inject.CodeConflict}

// TestPassed checks the reasons why rules do not apply to the pods of the cases.
func TestPassed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[inject.Code][]string{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, tmpl := range report(t, archive).Templates {
			for _, step := range tmpl.Passed {
				reasons[step.Code] = append(reasons[step.Code], step.Message)
			}
		}
	}
	var got strings.Builder
	for _, code := range inject.DecisionCodes() {
		slices.Sort(reasons[code])
		for _, reason := range slices.Compact(reasons[code]) {
			fmt.Fprintf(&got, "%s: %s\n", code, reason)
		}
	}
	golden.File(t, "testdata/passed.txt", []byte(got.String()))
}

func report(t *testing.T, archive *txtar.Archive) *explain.Report {
	t.Helper()
	s := explain.Subject{Object: explain.Object{Kind: "Deployment", Name: "web", Namespace: "shop"}}
	s.Recreate = func([]byte) (string, error) { return "", nil }
	s.Request = inject.Request{Operation: "CREATE", Namespace: request.Namespace{Name: "shop"}}
	var files []templates.File
	var entries []explain.Entry
	for _, f := range archive.Files {
		switch {
		case strings.HasSuffix(f.Name, ".template.yaml"):
			files = append(files, templates.File{Path: f.Name, Data: f.Data})
		case f.Name == "pod.yaml":
			text, err := utilyaml.ToJSON(f.Data)
			if err != nil {
				t.Fatal(err)
			}
			s.Request.Object = text
		case f.Name == "namespace.yaml":
			if err := yaml.Unmarshal(f.Data, &s.Request.Namespace); err != nil {
				t.Fatal(err)
			}
			s.Request.Namespace.Known = true
		case f.Name == "webhooks.yaml":
			entries = entriesIn(t, f.Data)
			s.Webhooks = []explain.Webhook{}
		case f.Name == "live":
			s.Object = explain.Object{Kind: "Pod", Name: "web-x2x8z", Namespace: "shop", Live: true}
		case f.Name == "recreate":
			s.Recreate = func([]byte) (string, error) { return strings.TrimSpace(string(f.Data)), nil }
		case !strings.HasPrefix(f.Name, "want."):
			t.Fatalf("a case has no file %q", f.Name)
		}
	}
	set, err := templates.Compile(files...)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Templates) > 0 {
		s.Request.Object = bytes.ReplaceAll(s.Request.Object, []byte("REVISION"), []byte(set.Templates[0].Revision))
	}
	for i := range entries {
		s.Webhooks = append(s.Webhooks, entries[i].Match(s.Request.Namespace.Labels, s.Request.Object))
	}
	r, err := explain.New(inject.New(set), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func entriesIn(t *testing.T, text []byte) []explain.Entry {
	t.Helper()
	var all []explain.Entry
	for doc := range bytes.SplitSeq(text, []byte("---\n")) {
		var kind metav1.TypeMeta
		if err := utilyaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind == "MutatingWebhookConfiguration" {
			var c admissionregistrationv1.MutatingWebhookConfiguration
			if err := utilyaml.Unmarshal(doc, &c); err != nil {
				t.Fatal(err)
			}
			all = append(all, explain.MutatingEntries(&c)...)
			continue
		}
		var c admissionregistrationv1.ValidatingWebhookConfiguration
		if err := utilyaml.Unmarshal(doc, &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, explain.ValidatingEntries(&c)...)
	}
	return all
}

// checkText checks that at every width every line fits, except for a single long word, that no line ends in a
// space, and that the words are the same. Color changes no word.
func checkText(t *testing.T, r *explain.Report) {
	t.Helper()
	text := r.Text(100, false, explain.Verbose)
	for _, width := range []int{40, 57, 80, 100, 250} {
		narrow := r.Text(width, false, explain.Verbose)
		for line := range strings.Lines(narrow) {
			line = strings.TrimSuffix(line, "\n")
			isCommand := r.OptInCommand != "" && strings.TrimSpace(line) == r.OptInCommand // users copy it
			if utf8.RuneCountInString(line) > width && !alone.MatchString(line) && !isCommand || strings.HasSuffix(line, " ") || strings.ContainsAny(line, "\t\x1b") {
				t.Errorf("a line does not fit in %d columns: %q", width, line)
			}
		}
		if !slices.Equal(strings.Fields(narrow), strings.Fields(text)) {
			t.Errorf("in %d columns it says\n%s\nand in 100\n%s", width, narrow, text)
		}
	}
	if got := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(r.Text(100, true, explain.Verbose), ""); got != text {
		t.Errorf("with colour it says\n%s\nwithout\n%s", got, text)
	}
}

// alone is a word alone, with the head of its paragraph or without it.
var alone = regexp.MustCompile(`^( *| {0,2}[a-z]+( [a-z]+)* +)\S+$`)

// TestCorpus checks that for every pod of the corpus, the report agrees with the engine and fits
// the width.
func TestCorpus(t *testing.T) {
	t.Parallel()
	set, err := templates.Load(templates.Source{FS: os.DirFS("../../testdata/templates"), Name: "."})
	if err != nil {
		t.Fatal(err)
	}
	injector := inject.New(set)
	n := 0
	for _, one := range reviews.All(t) {
		var review struct {
			Request struct {
				Operation, Namespace, SubResource string
				Resource                          struct{ Resource string }
				Object                            json.RawMessage
			}
		}
		if err := json.Unmarshal(one.Body, &review); err != nil {
			t.Fatal(err)
		}
		if review.Request.Operation != "CREATE" || review.Request.SubResource != "" || review.Request.Resource.Resource != "pods" {
			continue
		}
		n++
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: review.Request.Namespace}, Object: review.Request.Object}
		want, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		r, err := explain.New(injector, explain.Subject{Object: explain.Object{Kind: "Pod", Name: "x"}, Request: req})
		if err != nil {
			t.Fatal(err)
		}
		checkText(t, r)
		if !bytes.Equal(r.Patch, want.Patch()) {
			t.Errorf("%s: explained %s, injected %s", one.Name, r.Patch, want.Patch())
		}
		for i := range want.Decisions {
			if got := r.Templates[i]; got.Code != want.Decisions[i].Code || want.Decisions[i].Message != "" && got.Message != want.Decisions[i].Message || got.Message == "" {
				t.Errorf("%s: explained %s %q, decided %s %q", one.Name, got.Code, got.Message, want.Decisions[i].Code, want.Decisions[i].Message)
			}
		}
	}
	t.Logf("%d pods", n)
}

// TestUnreadAnnotations checks the note about annotations of a product that no parameter reads.
func TestUnreadAnnotations(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("x", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {default: true, params: [{name: lang, annotation: otel.example/inject-java, default: ""}, {name: s, prefix: otel.example/secret-}],
		pod: {metadata: {annotations: {otel.example/status: done}}, spec: {containers: [{name: a, image: a, args: ["${params.lang}", "${params.s.map(k, k).join('')}"]}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for annotations, want := range map[string]string{
		`"otel.example/inject-go":"true"`:                                  "no parameter reads the annotation otel.example/inject-go, but some read others of otel.example",
		`"otel.example/inject-go":"true","otel.example/b":"x"`:             "no parameter reads the annotations otel.example/b, otel.example/inject-go, but some read others of otel.example",
		`"otel.example/inject-java":"true","otel.example/secret-a":"x"`:    "",
		`"otel.example/status":"done","example.com/inject-go":"x","a":"x"`: "",
	} {
		r, err := explain.New(inject.New(templates.NewSet(found)), explain.Subject{Request: inject.Request{
			Operation: "CREATE", OptedIn: true, Object: []byte(`{"metadata":{"annotations":{` + annotations + `}},"spec":{"containers":[{"name":"app","image":"a"}]}}`),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.Notes, "\n"); got != want {
			t.Errorf("%s: %q, not %q", annotations, got, want)
		}
	}
}
