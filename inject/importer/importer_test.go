// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/yamldiff"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestCases runs the cases. A case is one file with what is imported (all files except the following ones), and the templates and
// the report that this gives. It also has a pod (pod.yaml), the labels of its namespace (namespace.yaml), and the pod with the
// templates.
func TestCases(t *testing.T) {
	golden.Cases(t, "testdata/cases/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		return wantOf(t, archive, importCase(t, archive))
	})
}

// wantOf returns the files of a case with the results.
func wantOf(t *testing.T, archive *txtar.Archive, results []Imported) []txtar.File {
	files := []txtar.File{{Name: "templates", Data: []byte(YAML(results))}, {Name: "report", Data: []byte(Text(results))}}
	if pod := fileOf(archive, "pod.yaml"); pod != nil {
		files = append(files, txtar.File{Name: "injected", Data: []byte(injectCase(t, archive, pod, results))})
	}
	return files
}

// TestPublicConfigurations imports configurations that the products' own documentation, examples and tests have, with other names
// and values. It logs how many are imported as a whole (go test -v).
func TestPublicConfigurations(t *testing.T) {
	var mu sync.Mutex
	count := map[Outcome]int{}
	t.Run("cases", func(t *testing.T) {
		golden.Cases(t, "testdata/public/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
			results := importCase(t, archive)
			mu.Lock()
			count[results[0].Outcome]++
			mu.Unlock()
			return wantOf(t, archive, results)
		})
	})
	t.Logf("%d as a whole, %d in part, %d not", count[Whole], count[Part], count[None])
	if count[Whole] < 11 || count[None] > 2 {
		t.Errorf("%v", count)
	}
}

// sourcesOf returns the files of a case that are imported.
func sourcesOf(archive *txtar.Archive) (sources []Source) {
	for _, f := range archive.Files {
		if !slices.Contains([]string{"pod.yaml", "namespace.yaml", "templates", "report", "injected"}, f.Name) {
			sources = append(sources, Source{f.Name, f.Data})
		}
	}
	return sources
}

func fileOf(archive *txtar.Archive, name string) []byte {
	for _, f := range archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func importCase(t testing.TB, archive *txtar.Archive) []Imported {
	t.Helper()
	results, err := Import(sourcesOf(archive))
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// injectCase returns the decisions about the pod, and the pod with the templates.
func injectCase(t *testing.T, archive *txtar.Archive, pod []byte, results []Imported) string {
	t.Helper()
	set, err := templates.Load(templates.Source{Path: "imported.yaml", Data: []byte(YAML(results))})
	if err != nil {
		t.Fatal(err)
	}
	object, err := yaml.YAMLToJSON(pod)
	if err != nil {
		t.Fatal(err)
	}
	ns := request.Namespace{Name: "shop"}
	if data := fileOf(archive, "namespace.yaml"); data != nil {
		if err := yaml.Unmarshal(data, &ns); err != nil {
			t.Fatal(err)
		}
		ns.Known = true
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[inject.LabelInject] = inject.Enabled
	}
	injector, req := inject.New(set), inject.Request{Operation: "CREATE", Username: "user", Namespace: ns, Object: object}
	result, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	again := req
	again.Object = result.InjectedJSON()
	if second, err := injector.Inject(again); err != nil || second.Adds() {
		t.Errorf("a second injection adds %s (%v)", second.Patch(), err)
	}
	var out strings.Builder
	for _, d := range result.Decisions {
		fmt.Fprintf(&out, "# %s: %s\n", d.Template, d.Code)
	}
	for _, w := range result.Warnings() {
		fmt.Fprintf(&out, "# %s\n", w)
	}
	var injected map[string]any
	if err := json.Unmarshal(result.InjectedJSON(), &injected); err != nil {
		t.Fatal(err)
	}
	dropRecords(injected)
	return out.String() + yamldiff.Encode(injected)
}

// dropRecords removes the annotations that Pillion writes.
func dropRecords(pod map[string]any) {
	metadata, _ := pod["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for key := range annotations {
		if strings.HasSuffix(key, "/injected") {
			delete(annotations, key)
		}
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

// TestLiteralText checks that a string of the input is the same string in the pod, whatever it means in YAML, in a template or in CEL.
func TestLiteralText(t *testing.T) {
	texts := []string{
		"${HOME}", "$${HOME}", "$$${A}$", "a ${B", "$(C)", "yes", "010", "1.0", "~", "null", "", " x ", "it's \"quoted\"", "a: b", "- c", "# d", "line 1\nline 2\n",
		"tab\there", "x | y", strings.Repeat("word ", 40), "{{ y }}", "%", "\\n",
	}
	args, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	set := fmt.Sprintf(`{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet", "metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"app": "b"}}, "containers": [
		{"name": "a", "image": "registry.example/a:1", "args": %s}]}}`, args)
	results, err := Import([]Source{{"a.json", []byte(set)}})
	if err != nil {
		t.Fatal(err)
	}
	archive := &txtar.Archive{}
	pod := []byte(`{"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [{"name": "b", "image": "registry.example/b:1"}]}}`)
	var injected struct {
		Spec struct{ Containers []struct{ Args []string } }
	}
	if err := yaml.Unmarshal([]byte(injectCase(t, archive, pod, results)), &injected); err != nil {
		t.Fatal(err)
	}
	if got := injected.Spec.Containers[0].Args; !slices.Equal(got, texts) {
		t.Errorf("got %q\nwant %q\nfrom %s", got, texts, YAML(results))
	}
}

// TestWrapFolded checks that a folded string means the same after it is broken into lines.
func TestWrapFolded(t *testing.T) {
	for _, text := range []string{strings.Repeat("container.name == 'a' || ", 20) + "true", strings.Repeat("x", 300), strings.Repeat("ab ", 50) + "c: >- |"} {
		document := writeDocument(mapNode("literal", textNode(strings.Repeat("long line >-\n  more ", 30)), "folded", expressionNode(text)), nil)
		var got map[string]string
		if err := yaml.Unmarshal([]byte(document), &got); err != nil || got["folded"] != text || got["literal"] != strings.Repeat("long line >-\n  more ", 30) {
			t.Errorf("%v: %q in\n%s", err, got, document)
		}
	}
}
