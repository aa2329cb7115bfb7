// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestInjectEngineCases runs every case of the engine with the command. The output is the pod with
// the engine's patch, applied by the API server's library.
func TestInjectEngineCases(t *testing.T) {
	files, err := filepath.Glob("../../inject/testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			engineCase(t, archive)
		})
	}
}

func engineCase(t *testing.T, archive *txtar.Archive) {
	folder := t.TempDir()
	namespace := request.Namespace{Name: "shop"}
	args := []string{"inject", "-q", "-f", "-", "-n", "shop", "-t", folder}
	var pod string
	for _, f := range archive.Files {
		switch {
		case strings.HasSuffix(f.Name, ".template.yaml"):
			if err := os.WriteFile(filepath.Join(folder, f.Name), f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		case f.Name == "pod.json" || f.Name == "pod.yaml":
			pod = string(f.Data)
		case f.Name == "namespace.yaml":
			if err := yaml.Unmarshal(f.Data, &namespace); err != nil {
				t.Fatal(err)
			}
			namespace.Known = true
			args = append(args, "-n", namespace.Name, "--namespace-label", "x=y") // known, whatever it says
			for k, v := range namespace.Labels {
				args = append(args, "--namespace-label", k+"="+v)
			}
			for k, v := range namespace.Annotations {
				args = append(args, "--namespace-annotation", k+"="+v)
			}
		}
	}
	switch {
	case strings.HasPrefix(pod, "kind:") || strings.Contains(pod, "\nkind:") || strings.Contains(pod, `"kind":"Pod"`):
	case strings.HasPrefix(pod, "{"):
		pod = `{"apiVersion":"v1","kind":"Pod",` + pod[1:]
	default:
		pod = "apiVersion: v1\nkind: Pod\n" + pod
	}
	before, err := fromYAML(pod)
	if err != nil {
		t.Skip("not for a file:", err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(args, strings.NewReader(pod), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	set, err := cli.LoadTemplates(nil, []string{folder})
	if err != nil {
		t.Fatal(err)
	}
	if _, said := namespace.Labels[inject.LabelInject]; namespace.Known && !said {
		if namespace.Labels == nil {
			namespace.Labels = map[string]string{}
		}
		namespace.Labels[inject.LabelInject] = inject.Enabled
	}
	result, err := inject.New(set).Inject(inject.Request{Operation: "CREATE", File: true, Written: true, Namespace: namespace, Object: before})
	if err != nil {
		t.Fatal(err)
	}
	if !result.Adds() {
		if stdout.String() != pod {
			t.Errorf("nothing is to add, but this came out:\n%s", &stdout)
		}
		return
	}
	patch, err := jsonpatch.DecodePatch(result.Patch())
	if err != nil {
		t.Fatal(err)
	}
	want, err := patch.Apply(before)
	if err != nil {
		t.Fatal(err)
	}
	got, err := fromYAML(stdout.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, &stdout)
	}
	if !reflect.DeepEqual(withoutRecord(value(t, got)), value(t, want)) {
		t.Errorf("the command gives\n%s\nthe patch gives\n%s", got, want)
	}
}

// withoutRecord is a pod without what inject writes for uninject alone.
func withoutRecord(pod any) any {
	if metadata, ok := pod.(map[string]any)["metadata"].(map[string]any); ok {
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, inject.AnnotationUninject)
		}
	}
	return pod
}

func fromYAML(text string) ([]byte, error) {
	node, err := yamledit.Document{Body: []byte(text)}.Parse()
	if err != nil {
		return nil, err
	}
	n, err := jsontree.FromYAML(node.Node)
	if err != nil {
		return nil, err
	}
	return n.AppendTo(nil), nil
}

func value(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// FuzzInject checks that a second run adds nothing to the output of inject, and that a stream
// without pods is unchanged.
func FuzzInject(f *testing.F) {
	files, err := filepath.Glob("testdata/script/inject-*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal("no scripts", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			f.Add(part.Data)
		}
	}
	set, err := cli.LoadTemplates(nil, []string{"testdata/templates"})
	if err != nil {
		f.Fatal(err)
	}
	injector := inject.New(set)
	once := func(data []byte) ([]byte, error) {
		j := newInjection(&injectOptions{namespace: "default"}, injector, io.Discard)
		if err := j.changeFile("stream.yaml", data); err != nil {
			return nil, err
		}
		return j.encodeOutput()
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := once(data)
		if err != nil {
			if strings.Contains(err.Error(), "please report it") {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Contains(data, []byte("Pod")) && !bytes.Contains(data, []byte("template")) && !bytes.Equal(out, data) {
			t.Errorf("changed without a pod:\n%s", out)
		}
		again, err := once(out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !bytes.Equal(again, out) {
			t.Errorf("a second injection changes\n%s\nto\n%s", out, again)
		}
	})
}

// TestLineEnds checks that added lines have the line ends of most lines, and that no other line end
// changes.
func TestLineEnds(t *testing.T) {
	t.Parallel()
	const pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: b # x\n\n    args: [c]\n"
	with := func(in string) string {
		var out bytes.Buffer
		o := &injectOptions{files: []string{"-"}, templates: []string{"testdata/templates"}, namespace: "default", output: "yaml", quiet: true}
		must(t, o.run(t.Context(), strings.NewReader(in), &out, io.Discard))
		return out.String()
	}
	want := with(pod)
	crlf := strings.ReplaceAll(pod, "\n", "\r\n")
	for _, row := range []struct{ in, want string }{
		{crlf, strings.ReplaceAll(want, "\n", "\r\n")},
		{strings.Replace(crlf, "\r", "", 1), strings.Replace(strings.ReplaceAll(want, "\n", "\r\n"), "\r", "", 1)},
		{strings.Replace(pod, "\n", "\r\n", 2), strings.Replace(want, "\n", "\r\n", 2)},
	} {
		if got := with(row.in); got != row.want {
			t.Errorf("of %q\n%q, want\n%q", row.in, got, row.want)
		}
	}
}

// TestInjectKeepsEverything checks random streams. Every object that kubectl's decoder reads is in
// the output, in the same order. If there is anything else in the stream, nothing is written.
func TestInjectKeepsEverything(t *testing.T) {
	t.Parallel()
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%d"},"spec":{"containers":[{"name":"web","image":"x"}]}}`
	const other = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%d"},"data":{"a":"{}{}\n---\n"}}`
	const yamlPod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: \"%d\"\nspec:\n  containers:\n  - {name: web, image: x}\n# %[1]d\n"
	const yamlOther = "{apiVersion: v1, kind: ConfigMap, metadata: {name: \"%d\"}}\n"
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		var in strings.Builder
		broken, asJSON := r.IntN(8) == 0, r.IntN(2) == 0
		if !asJSON {
			in.WriteString("# a stream of YAML\n")
		}
		for i := range 1 + r.IntN(6) {
			if asJSON {
				fmt.Fprintf(&in, []string{pod, other}[r.IntN(2)], i)
				in.WriteString([]string{"", "\n", "\n\n", " "}[r.IntN(4)])
			} else {
				in.WriteString("---\n")
				fmt.Fprintf(&in, []string{pod + "\n", other + "\n", yamlPod, yamlOther}[r.IntN(4)], i)
			}
		}
		if broken {
			in.WriteString([]string{"}", "\n]\n", "\n{\"a\":", "\n- x\n"}[r.IntN(4)])
		}
		var out, report bytes.Buffer
		code := run([]string{"inject", "-f", "-", "-t", "testdata/templates"}, strings.NewReader(in.String()), &out, &report)
		if broken {
			if code == exitOK || out.Len() > 0 {
				t.Errorf("seed %d: exit code %d for\n%s\n%s", seed, code, &in, &out)
			}
			continue
		}
		want, got := namesIn(t, in.String()), namesIn(t, out.String())
		if code != exitOK || !slices.Equal(got, want) {
			t.Errorf("seed %d: exit code %d, %v of %v:\n%s\n%s\n%s", seed, code, got, want, &in, &out, &report)
		}
		if pods, injected := strings.Count(in.String(), "Pod"), strings.Count(report.String(), "log-agent: injected"); pods != injected {
			t.Errorf("seed %d: %d of %d pods are injected:\n%s", seed, injected, pods, &in)
		}
	}
}

// namesIn are the names of all objects of a stream, as kubectl reads it.
func namesIn(t *testing.T, stream string) (names []string) {
	t.Helper()
	for d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(stream), 4096); ; {
		var object struct {
			Metadata struct{ Name string }
		}
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			return names
		} else if err != nil {
			t.Fatal(err, stream)
		}
		if object.Metadata.Name != "" {
			names = append(names, object.Metadata.Name)
		}
	}
}
