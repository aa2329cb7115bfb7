// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestParse checks the files in testdata. Each file in testdata/bad lists its problems below the
// line "# problems", one per line. Files in testdata/good have no problems.
func TestParse(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			const mark = "# problems\n"
			source, _, _ := strings.Cut(string(text), mark)
			found, problems := templates.Parse(filepath.Base(file), []byte(source))
			var b strings.Builder
			for _, p := range problems {
				b.WriteString("# " + p.String() + "\n")
			}
			bad := strings.HasPrefix(file, "testdata/bad")
			switch got := b.String(); {
			case bad && len(problems) == 0, !bad && len(problems) > 0:
				t.Fatalf("problems:\n%s", got)
			case !bad && len(found) == 0:
				t.Fatal("no template")
			case bad:
				golden.File(t, file, []byte(source+mark+got))
			}
		})
	}
}

const minimal = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: NAME}
spec:
  order: ORDER
  pod: {spec: {containers: [{name: c, image: i}]}}
`

func file(name, order string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(strings.NewReplacer("NAME", name, "ORDER", order).Replace(minimal))}
}

// TestLoad checks which files of a folder are templates, and their order.
func TestLoad(t *testing.T) {
	folder := fstest.MapFS{
		"b.yaml":             file("b", "1"),
		"a.yml":              file("a", "1"),
		"first.json":         &fstest.MapFile{Data: []byte(`{"apiVersion":"pillion.dev/v1alpha1","kind":"ClusterSidecarTemplate","metadata":{"name":"z"},"spec":{"pod":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)},
		"README.md":          &fstest.MapFile{Data: []byte("# not a template")},
		"kustomization.yaml": &fstest.MapFile{Data: []byte("resources: []")},
		"..data/b.yaml":      file("b", "1"),
		".hidden.yaml":       &fstest.MapFile{Data: []byte("nonsense: [")},
		"below/c.yaml":       &fstest.MapFile{Data: []byte("nonsense: [")},
	}
	set, err := templates.Load(templates.Source{FS: folder, Name: ".", Path: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tpl := range set.Templates {
		names = append(names, tpl.Name)
	}
	if got := strings.Join(names, " "); got != "z a b" {
		t.Errorf("order: %s", got)
	}
	if set.Templates[1].File != "dir/a.yml" || len(set.Revision) != 12 {
		t.Errorf("%+v", set)
	}
}

// TestLoadIsAllOrNothing checks that one problem in any file makes the whole set invalid, and that all problems are reported.
func TestLoadIsAllOrNothing(t *testing.T) {
	folder := fstest.MapFS{
		"good.yaml":  file("good", "1"),
		"again.yaml": file("good", "2"),
		"bad.yaml":   &fstest.MapFile{Data: []byte("a: [")},
	}
	set, err := templates.Load(templates.Source{FS: folder, Name: ".", Path: "dir"}, templates.Source{FS: folder, Name: "gone.yaml", Path: "gone.yaml"})
	if set != nil {
		t.Error("a set in spite of problems")
	}
	var problems problem.Problems
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"dir/bad.yaml:1: not YAML", "gone.yaml: ", "dir/again.yaml:3: metadata.name: the template good is also in dir/good.yaml:3"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

// TestLoader checks that unchanged files are not compiled again, whether they are valid or not.
func TestLoader(t *testing.T) {
	folder := fstest.MapFS{"a.yaml": file("a", "1")}
	var loader templates.Loader
	load := func() (*templates.Set, error) {
		return loader.Load(templates.Source{FS: folder, Name: "a.yaml", Path: "a.yaml"})
	}
	first, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := load(); again != first {
		t.Error("compiled anew")
	}
	good := folder["a.yaml"]
	folder["a.yaml"] = &fstest.MapFile{Data: []byte("a: [")}
	_, bad := load()
	if _, again := load(); bad == nil || &bad.(problem.Problems)[0] != &again.(problem.Problems)[0] { //nolint:errorlint // the very same
		t.Error("a bad file is looked at again", bad, again)
	}
	delete(folder, "a.yaml")
	if set, err := load(); set != nil || err == nil {
		t.Error("a file that is gone is no problem")
	}
	folder["a.yaml"] = good
	if back, err := load(); err != nil || back.Revision != first.Revision {
		t.Error("not loaded when it is back", err)
	}
}

// TestRevision checks that the revision depends on the content of a template, and not on its form.
func TestRevision(t *testing.T) {
	parse := func(text string) *templates.Template {
		found, problems := templates.Parse("x.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return found[0]
	}
	base := `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {order: 1, pod: {spec: {containers: [{name: c, image: i}]}}}}`
	a := parse(base)
	b := parse("# a comment\nkind: ClusterSidecarTemplate\napiVersion: pillion.dev/v1alpha1\nspec:\n  pod:\n    spec:\n      containers:\n      - image: \"i\"\n        name: c\n  order: 1\nmetadata: {name: a}\n")
	c := parse(strings.Replace(base, "image: i", "image: j", 1))
	if a.Revision != b.Revision {
		t.Error("comments, order and layout count")
	}
	if a.Revision == c.Revision || len(a.Revision) != 12 {
		t.Error("the image does not count", a.Revision, c.Revision)
	}
}

// TestClosest checks which name is suggested for a misspelled one.
func TestClosest(t *testing.T) {
	names := []string{"containers", "initContainers", "volumes", "name", "level", "maximum", "maxLength", "description", "auth-proxy"}
	for name, want := range map[string]string{
		"contaners": "containers", "naem": "name", "Volumes": "volumes", "lvel": "level", "xyz": "", "": "", "mtls-proxy": "", "aut-prxy": "auth-proxy",
		"max": "maximum", "MaxL": "maxLength", "desc": "description", "ma": "", // abbreviations
		strings.Repeat("x", 100_000): "",
	} {
		if got := problem.Closest(name, names); got != want {
			t.Errorf("%.20q: %q, want %q", name, got, want)
		}
	}
}

// FuzzParse checks that any input is rejected with problems that have a line, or renders to the
// same bytes twice.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.yaml", "library/*.yaml", "library/cloud/*.yaml", "from/*/*.yaml", "../inject/testdata/templates/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal("no files ", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, problems := templates.Parse("x.yaml", []byte(text))
		for _, p := range problems {
			if p.Line < 0 || p.Message == "" || p.File != "x.yaml" {
				t.Fatalf("%+v", p)
			}
		}
		for _, tpl := range found {
			checkLabels(t, tpl)
			for _, render := range []func(*templates.Template) (string, error){renderText, renderSampled} {
				first, firstErr := render(tpl)
				again, againErr := render(tpl)
				if first != again || (firstErr == nil) != (againErr == nil) {
					t.Fatalf("%s\n%s\n%v\n%v", first, again, firstErr, againErr)
				}
			}
		}
	})
}

// sampledPod has what whole objects, mounts of the pod's volumes and "${ifSet}" read.
const sampledPod = `{"metadata":{"name":"web","labels":{"b":"1","a":"2"},"annotations":{"s/b":"1","s/a":"2"}},"spec":{"serviceAccountName":"web","imagePullSecrets":[{"name":"s"}],
	"initContainers":[{"name":"init","image":"i"}],"volumes":[{"name":"data","emptyDir":{}},{"name":"sample","emptyDir":{}}],"containers":[
	{"name":"app","image":"a:1","command":["run"],"env":[{"name":"JAVA_TOOL_OPTIONS","value":"-Xmx1g"},{"name":"ROLE","value":"own"}],"ports":[{"containerPort":80,"name":"http"}],
	"volumeMounts":[{"name":"data","mountPath":"/data"}],"securityContext":{"runAsUser":7},"resources":{"limits":{"cpu":"1"}},"livenessProbe":{"tcpSocket":{"port":80}}},
	{"name":"second","image":"b:1"}]}}`

// renderSampled returns all that a template makes for a pod whose annotations set each parameter to one of its samples.
func renderSampled(tpl *templates.Template) (string, error) {
	pod, err := jsontree.Parse([]byte(sampledPod))
	if err != nil {
		return "", err
	}
	account := &request.ServiceAccount{
		Name: "web", Labels: map[string]string{"b": "1", "a": "2", "c": "3"}, Annotations: map[string]string{"example.com/role": "r", "eks.amazonaws.com/role-arn": "arn", "b": "1", "a": "2"}, Known: true,
	}
	in := &cel.Input{Pod: pod, Namespace: request.Namespace{Name: "shop", Known: true}, ServiceAccount: account}
	values, err := tpl.Values(sampleAnnotations(tpl), account, &in.Namespace)
	if err != nil {
		return "", err
	}
	fits, err := tpl.Condition(in, values)
	if err != nil {
		return "", err
	}
	place, err := tpl.Placement(in, values)
	if err != nil {
		return "", err
	}
	rendered, err := tpl.Render(in, values)
	text := fmt.Sprintln(values, fits, place, rendered.String())
	if err != nil {
		return text, err
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers := pod.Get("spec").Get(list).Items()
		for i := range containers {
			added, err := tpl.ForEach(in, values, &containers[i], list == "initContainers")
			for j := range added {
				text += added[j].String() + "\n"
			}
			if err != nil {
				return text, err
			}
		}
	}
	return text, nil
}

// sampleAnnotations sets each parameter to the first of its samples that is valid.
func sampleAnnotations(tpl *templates.Template) *jsontree.Node {
	texts := map[string]string{}
	for i := range tpl.Spec.Params {
		p := &tpl.Spec.Params[i]
		valid := func(sample string) bool {
			values, _ := tpl.Values(Members(tpl.Annotations(p, sample)), nil, &request.Namespace{}) // others may have no value
			return slices.ContainsFunc(values, func(v params.Value) bool { return v.Name == p.Name && v.Source == params.FromPod })
		}
		samples := params.Samples(p)
		if i := slices.IndexFunc(samples, valid); i >= 0 {
			sampled := tpl.Annotations(p, samples[i])
			maps.Copy(sampled, texts) // two parameters may read the same annotation
			texts = sampled
		}
	}
	return Members(texts)
}

func Members(texts map[string]string) *jsontree.Node {
	n := jsontree.Members()
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		n.Set(key, jsontree.Text(texts[key]))
	}
	return &n
}

// checkLabels checks the labels of a template that loads. They must have its own prefix, or a
// domain that it names and that is not reserved for Kubernetes or Pillion.
func checkLabels(t *testing.T, tpl *templates.Template) {
	t.Helper()
	text, err := renderText(tpl)
	var pod struct {
		Metadata struct{ Labels map[string]string }
	}
	if err != nil || json.Unmarshal([]byte(text), &pod) != nil {
		return
	}
	for key := range pod.Metadata.Labels {
		prefix, _, _ := strings.Cut(key, "/")
		below := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
		named := strings.Contains(key, "/") && slices.ContainsFunc(tpl.Spec.LabelDomains, below) && !slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "pillion.dev"}, below)
		if prefix != tpl.Name+".pillion.dev" && prefix != tpl.Spec.Replaces+".pillion.dev" && !named {
			t.Errorf("the template %s with labelDomains %q sets the label %s", tpl.Name, tpl.Spec.LabelDomains, key)
		}
	}
}

// TestAllProblems checks that no problem of a document hides those of others in the same file: a file of all documents in
// testdata/bad has the problems of each.
func TestAllProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	var stream strings.Builder
	want, broken := map[int]problem.Problem{}, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source, _, _ := strings.Cut(string(text), "# problems\n")
		if strings.HasPrefix(source, "%") || strings.Contains(file, "kubectl") {
			continue // it depends on the whole file
		}
		stream.WriteString("---\n")
		before := strings.Count(stream.String(), "\n")
		_, problems := templates.Parse("all.yaml", []byte(source))
		for _, p := range problems {
			if p.Line += before; strings.HasPrefix(p.Message, "not YAML") {
				p.Message = "not YAML" // in an open quote, it is another sentence if a document follows
				broken++
			}
			want[len(want)] = p
		}
		stream.WriteString(source + "\n")
	}
	_, problems := templates.Parse("all.yaml", []byte(stream.String()))
	for _, p := range want {
		if !slices.ContainsFunc(problems, func(got problem.Problem) bool {
			return got == p || p.Message == "not YAML" && strings.HasPrefix(got.Message, p.Message) && got.Line >= p.Line && got.Line < p.Line+20
		}) {
			t.Errorf("it does not report %s", p)
		}
	}
	if len(problems) > len(want) || broken < 5 {
		t.Errorf("%d problems, of which %d are of documents that are no YAML, instead of %d", len(problems), broken, len(want))
	}
}
