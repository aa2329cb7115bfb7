// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/library"
)

// TestLibraryLevels checks that no value of a parameter weakens the level restricted of the library's templates, nor chooses what they
// run. For the templates that read the annotations of other products, a golden file has what these annotations allow.
func TestLibraryLevels(t *testing.T) {
	t.Parallel()
	e, err := NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	set, err := templates.Load(templates.Source{FS: library.FS, Name: ".", Path: "library"}, templates.Source{FS: os.DirFS("../../../templates/library"), Name: "cloud", Path: "library/cloud"})
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range e.Try(set, nil) {
		if trial.Worst != psa.LevelRestricted || len(trial.Choices) > 0 {
			t.Errorf("%s: %q, %v, %v", trial.Template, trial.Worst, trial.Allows, trial.Choices)
		}
	}
	var text strings.Builder
	folders, err := filepath.Glob("../../../templates/from/*/*.yaml")
	if err != nil || len(folders) < 10 {
		t.Fatal(folders, err)
	}
	for _, file := range folders {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found, problems := templates.Parse(filepath.Base(file), data)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for _, trial := range e.Try(templates.NewSet(found), nil) {
			fmt.Fprintf(&text, "%s: %s\n", trial.Template, trial.Level())
			for i := range trial.Allows {
				fmt.Fprintf(&text, "  %s\n", trial.Allows[i].Sentence())
			}
			for _, choice := range trial.Choices {
				fmt.Fprintf(&text, "  %s\n", choice)
			}
		}
	}
	golden.File(t, "testdata/from.txt", []byte(text.String()))
}
