// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// TestReasonCodesAreDocumented: the reference has one section for each code and none
// for others, and each says what it means, how to see it and what to do.
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
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			codes[strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)] = true
		}
		return true
	})
	if !maps.Equal(codes, sections) {
		t.Errorf("there are the codes\n%v\nand sections for\n%v", slices.Sorted(maps.Keys(codes)), slices.Sorted(maps.Keys(sections)))
	}
}

// TestReadmeTemplate: the README's template is one.
func TestReadmeTemplate(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "```yaml\napiVersion: pillion.dev/")
	text, _, _ = strings.Cut(text, "```")
	found, problems := templates.Parse("README.md", []byte("apiVersion: pillion.dev/"+text))
	if len(found) != 1 || len(problems) > 0 {
		t.Error(problems)
	}
}
