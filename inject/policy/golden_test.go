// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
)

// TestCases runs the cases. A case is one file with templates (*.template.yaml) and the resulting
// policies or problems, validating and mutating.
func TestCases(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/*.txtar", runCase)
}

func runCase(t *testing.T, archive *txtar.Archive) (want []txtar.File) {
	var all []*templates.Template
	for _, f := range archive.Files {
		if !strings.HasSuffix(f.Name, ".template.yaml") {
			continue
		}
		found, problems := templates.Parse(f.Name, f.Data)
		if len(problems) > 0 {
			t.Fatal(problems.Error())
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b *templates.Template) int { return a.Spec.Order - b.Spec.Order })
	set := templates.NewSet(all)
	for _, kind := range []struct {
		name    string
		express func(*templates.Set, Options) ([]runtime.Object, error)
	}{{"mutating", Mutating}, {"validating", Validating}} {
		yaml, problems := txtar.File{Name: kind.name + ".yaml"}, txtar.File{Name: kind.name + ".problems"}
		objects, err := kind.express(set, Options{Excluded: []string{"build"}})
		if found := Problems(nil); errors.As(err, &found) {
			problems.Data = []byte(found.Error() + "\n")
		} else if len(objects) > 0 {
			yaml.Data = stream(t, objects)
		}
		want = append(want, yaml, problems)
	}
	return want
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
