// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/templates"
)

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write what the cases give into their files")
	flag.Parse()
	os.Exit(m.Run())
}

// A case is one file: templates (*.template.yaml), and the policies or the
// problems that they give, validating and mutating.
func TestCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { runCase(t, file) })
	}
}

func runCase(t *testing.T, file string) {
	t.Parallel()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*templates.Template
	given := archive.Files[:0]
	for _, f := range archive.Files {
		if !strings.HasSuffix(f.Name, ".template.yaml") {
			continue
		}
		given = append(given, f)
		found, problems := templates.Parse(f.Name, f.Data)
		if len(problems) > 0 {
			t.Fatal(problems.Error())
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b *templates.Template) int { return a.Spec.Order - b.Spec.Order })
	set := templates.NewSet(all)
	got := &txtar.Archive{Comment: archive.Comment, Files: slices.Clone(given)}
	for name, express := range map[string]func(*templates.Set, Options) ([]runtime.Object, error){"mutating": Mutating, "validating": Validating} {
		objects, err := express(set, Options{Excluded: []string{"build"}})
		if err == nil && len(objects) == 0 {
			continue
		}
		if problems := Problems(nil); errors.As(err, &problems) {
			got.Files = append(got.Files, txtar.File{Name: name + ".problems", Data: []byte(problems.Error() + "\n")})
			continue
		}
		got.Files = append(got.Files, txtar.File{Name: name + ".yaml", Data: stream(t, objects)})
	}
	slices.SortFunc(got.Files[len(given):], func(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) })
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text := txtar.Format(got); string(text) != string(want) {
		if flag.Lookup("update").Value.String() != "true" {
			t.Fatalf("got:\n%s\nAfter reading it: go test ./inject/policy -run TestCases -update", text)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func stream(t *testing.T, objects []runtime.Object) []byte {
	t.Helper()
	var all []string
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return []byte(strings.Join(all, "---\n"))
}
