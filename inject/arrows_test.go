// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/testing/golden"
)

// TestArrows compares ARCHITECTURE.md with the packages and their imports. make arrows draws the picture again.
func TestArrows(t *testing.T) {
	const path = "../ARCHITECTURE.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const opening, closing = "<!-- arrows: written by make arrows -->\n", "<!-- end of arrows -->\n"
	before, rest, opened := strings.Cut(string(text), opening)
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		t.Fatalf("%s has no %q before %q", path, opening, closing)
	}
	all := imports(t)
	for name := range all {
		if !strings.Contains(before, "| [`"+name+"`](") {
			t.Errorf("the table of packages lacks %s", name)
		}
	}
	want := before + opening + picture(all) + closing + after
	golden.File(t, path, []byte(want))
}

// imports returns the packages of the module, each with those that it imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		all[name] = nil
		for _, path := range p.Imports {
			if own, ok := strings.CutPrefix(path, module+"/"); ok {
				all[name] = append(all[name], own)
			}
		}
	}
}

// picture draws the imports for Mermaid. It omits an arrow if a longer way leads to the same package.
func picture(imports map[string][]string) string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return from == to || slices.ContainsFunc(imports[from], func(next string) bool { return reaches(next, to) })
	}
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		for _, to := range slices.Sorted(slices.Values(imports[from])) {
			implied := func(other string) bool { return other != to && reaches(other, to) }
			if !slices.ContainsFunc(imports[from], implied) {
				fmt.Fprintf(&b, "  %s --> %s\n", from, to)
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}
