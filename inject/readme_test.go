// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// TestReasonCodesAreDocumented checks that the reference has one section for each code and no
// others. Each section must have the meaning, how to see it, and what to do. Each constant is a code of a decision or of a finding.
func TestReasonCodesAreDocumented(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, section := range regexp.MustCompile(`(?m)^#+ `).Split(string(readme), -1) {
		code, text, _ := strings.Cut(section, "\n")
		if strings.ToLower(code) != code || code == "" {
			continue // a title
		}
		if sections[code] {
			t.Errorf("%s has two sections", code)
		}
		sections[code] = true
		for _, part := range []string{"\n* Means: ", "\n* See: ", "\n* Do: "} {
			if strings.Count(text, part) != 1 {
				t.Errorf("%s has not one %q", code, strings.TrimSpace(part))
			}
		}
	}
	codes := map[string]bool{}
	listed := map[string]bool{string(inject.CodeMisplaced): true} // about a workload, and not about a pod
	for _, code := range slices.Concat(inject.DecisionCodes(), inject.FindingCodes()) {
		codes[string(code)], listed[string(code)] = true, true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			code := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
			if codes[code] = true; !listed[code] {
				t.Errorf("%s is neither in DecisionCodes nor in FindingCodes", spec.Names[0].Name)
			}
		}
		return true
	})
	for code := range codes {
		if !sections[code] {
			t.Errorf("inject/README.md has no section for the code %s", code)
		}
	}
	for code := range sections {
		if !codes[code] {
			t.Errorf("inject/README.md has a section for %s, which is no code", code)
		}
	}
}

// TestUsualCauses checks that the page names each reason why a pod has no sidecar among the usual causes.
func TestUsualCauses(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../manifests/docs/finding-the-cause.md")
	if err != nil {
		t.Fatal(err)
	}
	_, causes, _ := strings.Cut(string(page), "\n## Usual causes\n")
	causes, _, _ = strings.Cut(causes, "\n## ")
	for _, code := range inject.DecisionCodes() {
		if !code.Succeeded() && !strings.Contains(causes, "`"+string(code)+"`") {
			t.Errorf("manifests/docs/finding-the-cause.md: no usual cause has the code %s", code)
		}
	}
}

// TestFindingsPage checks that the page about the final check lists the code of each finding.
func TestFindingsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../manifests/docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, findings, _ := strings.Cut(string(page), "\n## Findings\n")
	findings, _, _ = strings.Cut(findings, "\n## ")
	for _, code := range inject.FindingCodes() {
		if !strings.Contains(findings, "`"+string(code)+"`") {
			t.Errorf("manifests/docs/checks.md: the table of findings has no row for the code %s", code)
		}
	}
}

// TestTemplatesOnPages checks that every template on a page can be loaded.
func TestTemplatesOnPages(t *testing.T) {
	n := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || built(d):
			return cmp.Or(err, fs.SkipDir)
		case filepath.Ext(path) != ".md":
			return nil
		}
		page, err := os.ReadFile(path)
		for _, block := range strings.Split(string(page), "```yaml\napiVersion: pillion.dev/")[1:] {
			text, _, _ := strings.Cut(block, "```")
			n++
			if found, problems := templates.Parse(path, []byte("apiVersion: pillion.dev/"+text)); len(found) != 1 || len(problems) > 0 {
				t.Error(problems)
			}
		}
		return err
	})
	if err != nil || n < 3 {
		t.Errorf("%d templates are found, %v", n, err)
	}
}
