// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// TestReasonCodesAreDocumented: the README's table has every code.
func TestReasonCodesAreDocumented(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## Reason codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		codes++
		code := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
		if !strings.Contains(section, "`"+code+"`") {
			t.Errorf("%s is not in the README's table", code)
		}
		return true
	})
	if codes < 17 {
		t.Errorf("only %d codes found", codes)
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
