// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/cmd/pillion/playground"
	"github.com/pillion-dev/pillion/inject"
)

// TestPlaygroundAgrees evaluates the pods of the engine's cases. It checks that the playground shows the result that
// pillion inject prints, and the decisions that pillion explain prints. e2e/playground checks that the WebAssembly of the page
// gives the same as the package.
func TestPlaygroundAgrees(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../inject/testdata/cases/*.txtar")
	must(t, err)
	compared, injected := 0, 0
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "service-account") {
			continue // the page has fields for a ServiceAccount, which commands read from a cluster
		}
		archive, err := txtar.ParseFile(file)
		must(t, err)
		in, args, ok := playgroundCase(t, archive)
		if !ok {
			continue
		}
		e, err := playground.New()
		must(t, err)
		out := e.Evaluate(in)
		if len(out.Problems)+len(out.Mistakes) > 0 || len(out.Objects) != 1 {
			continue // it is for the parsers, whose messages have tests of their own
		}
		compared++
		var stdout, stderr bytes.Buffer
		if code := run(append([]string{"inject"}, args...), strings.NewReader(in.Manifest), &stdout, &stderr); code != exitOK {
			t.Errorf("%s: inject exits with %d: %s", file, code, &stderr)
			continue
		}
		leaves := strings.Contains(strings.Join(strings.Fields(stderr.String()), " "), "left to the webhook") // whose pod the page shows
		if got, want := injectedPod(t, stdout.Bytes()), injectedPod(t, []byte(out.Result)); !leaves && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the playground shows\n%s\nand inject prints\n%s", file, out.Result, &stdout)
		}
		if out.Result != in.Manifest {
			injected++
		}
		compareDecisions(t, file, out.Objects[0].Decisions, explainedDecisions(t, in.Manifest, args))
	}
	if compared < 100 || injected < 50 {
		t.Errorf("only %d of %d cases are compared, and %d are injected", compared, len(files), injected)
	}
}

// playgroundCase returns a case as input of the playground, and as flags of commands that read the manifest from
// standard input. It returns false for cases without a pod as YAML.
func playgroundCase(t *testing.T, archive *txtar.Archive) (in *playground.Input, args []string, ok bool) {
	t.Helper()
	folder := t.TempDir()
	args = []string{"-f", "-", "-t", folder}
	in = &playground.Input{}
	var namespace struct{ Labels, Annotations map[string]string }
	for _, f := range archive.Files {
		switch text := string(f.Data); {
		case strings.HasSuffix(f.Name, ".template.yaml"):
			in.Templates += "---\n" + text
		case f.Name == "pod.yaml":
			in.Manifest = "apiVersion: v1\nkind: Pod\n" + text
		case f.Name == "namespace.yaml":
			must(t, yaml.Unmarshal(f.Data, &namespace))
		}
	}
	must(t, os.WriteFile(filepath.Join(folder, "templates.yaml"), []byte(in.Templates), 0o600))
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	if namespace.Labels[inject.LabelInject] == "" { // commands count a namespace without the label as opted in
		namespace.Labels[inject.LabelInject] = inject.Enabled
	}
	for flag, values := range map[string]map[string]string{"--namespace-label": namespace.Labels, "--namespace-annotation": namespace.Annotations} {
		for key, value := range values {
			args = append(args, flag, key+"="+value)
		}
	}
	in.NamespaceLabels, in.NamespaceAnnotations = yamlLines(t, namespace.Labels), yamlLines(t, namespace.Annotations)
	return in, args, in.Manifest != "" && in.Templates != ""
}

// injectedPod decodes a pod without the annotation for pillion uninject, which only the command writes.
func injectedPod(t *testing.T, manifest []byte) map[string]any {
	t.Helper()
	var pod map[string]any
	must(t, yaml.Unmarshal(manifest, &pod))
	metadata, _ := pod["metadata"].(map[string]any)
	if annotations, _ := metadata["annotations"].(map[string]any); annotations != nil {
		delete(annotations, inject.AnnotationUninject)
	}
	return pod
}

func yamlLines(t *testing.T, values map[string]string) string {
	t.Helper()
	if len(values) == 0 {
		return ""
	}
	text, err := yaml.Marshal(values)
	must(t, err)
	return string(text)
}

// decided is a decision as pillion explain -o json prints it.
type decided struct{ Template, Code, Message string }

func explainedDecisions(t *testing.T, manifest string, args []string) []decided {
	t.Helper()
	var stdout, stderr bytes.Buffer
	run(append([]string{"explain", "-o", "json", "--all"}, args...), strings.NewReader(manifest), &stdout, &stderr) // exits with 1 if the pod would be denied
	var found struct {
		Reports []struct{ Templates []decided }
	}
	if err := json.Unmarshal(stdout.Bytes(), &found); err != nil || len(found.Reports) != 1 {
		t.Fatalf("%v: %s%s", err, &stdout, &stderr)
	}
	return found.Reports[0].Templates
}

func compareDecisions(t *testing.T, file string, shown []playground.Decision, explained []decided) {
	t.Helper()
	var all []decided
	for i := range shown {
		all = append(all, decided{shown[i].Template, string(shown[i].Code), shown[i].Sentence})
	}
	byName := func(a, b decided) int { return strings.Compare(a.Template, b.Template) }
	slices.SortFunc(all, byName)
	slices.SortFunc(explained, byName)
	if !slices.Equal(all, explained) {
		t.Errorf("%s: the playground shows\n%q\nand explain prints\n%q", file, all, explained)
	}
}
