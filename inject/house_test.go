// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pillion-dev/pillion"

// TestImports checks which packages each package may import: cmd -> inject/webhook -> inject ->
// templates, and below cmd/pillion controller -> cluster -> server -> kube -> cli -> yamledit. It
// also checks which packages may use the network, files, logs and controller-runtime.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	impure := []string{"net/http", "os", "log", "log/slog", "github.com/prometheus/", "k8s.io/client-go/"}
	// The types in the functions of the package templates: a package that may import it may import these.
	vocabulary := []string{"templates/cel", "templates/cel/values", "templates/fragment", "templates/params", "templates/problem", "templates/request", "templates/v1alpha1", "templates/validation"}
	type rule struct{ internal, forbidden []string }
	rules := map[string]rule{
		"inject":                        {internal: []string{"inject/drift", "inject/kubelet", "inject/schema", "inject/workloads", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/report/audit":           {forbidden: impure},
		"inject/testing/cpu":            {},
		"inject/testing/size":           {},
		"inject/report/diff":            {internal: []string{"inject", "inject/report/explain", "inject/lint/limits", "inject/report/terminal", "inject/rollout", "inject/report/yamldiff", "templates"}, forbidden: impure},
		"inject/report/explain":         {internal: []string{"inject", "inject/lint/limits", "inject/report/terminal", "inject/schema", "templates"}, forbidden: impure},
		"inject/importer":               {internal: []string{"templates", "templates/jsontree"}, forbidden: impure},
		"inject/testing/golden":         {},
		"inject/lint/limits":            {internal: []string{"inject", "inject/lint/exposure", "inject/lint/sample", "inject/schema", "inject/workloads", "templates"}, forbidden: impure},
		"inject/lint/exposure":          {internal: []string{"inject/lint/sample", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/report/terminal":        {internal: []string{"inject", "templates"}, forbidden: impure},
		"inject/policy":                 {internal: []string{"inject", "inject/schema", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/testing/reviews":        {},
		"inject/rollout":                {internal: []string{"inject", "inject/report/explain", "inject/schema", "inject/workloads", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/schema":                 {internal: []string{"templates", "templates/jsontree"}, forbidden: impure},
		"inject/lint/sample":            {internal: []string{"templates", "templates/jsontree"}, forbidden: impure},
		"inject/templatetest":           {internal: []string{"inject", "inject/schema", "inject/report/yamldiff", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/report/status":          {internal: []string{"inject", "inject/report/explain", "inject/report/terminal", "inject/rollout", "inject/schema", "inject/workloads", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/report/yamldiff":        {forbidden: impure},
		"inject/webhook":                {internal: []string{"inject", "inject/lint/limits", "inject/schema", "inject/webhook/authentication", "inject/workloads", "templates", "templates/jsontree"}, forbidden: []string{"k8s.io/client-go/"}},
		"inject/webhook/authentication": {forbidden: []string{"os", "log", "log/slog", "github.com/prometheus/", "k8s.io/"}},
		"inject/workloads":              {internal: []string{"inject/schema", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/kubelet":                {internal: []string{"inject/schema", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/uninject":               {internal: []string{"inject", "inject/schema", "templates", "templates/jsontree"}, forbidden: impure},
		"inject/drift":                  {internal: []string{"inject/schema", "templates", "templates/jsontree"}, forbidden: impure},
		"templates":                     {internal: []string{"templates/cel", "templates/cel/diagnostics", "templates/cel/values", "templates/jsontree", "templates/params", "templates/problem", "templates/request", "templates/v1alpha1", "templates/validation", "templates/yamlnode", "templates/fragment"}, forbidden: impure},
		"templates/cel":                 {internal: []string{"templates/cel/diagnostics", "templates/cel/library", "templates/cel/values", "templates/jsontree", "templates/params", "templates/problem", "templates/request", "templates/v1alpha1"}, forbidden: impure},
		"templates/cel/diagnostics":     {internal: []string{"templates/cel/values", "templates/jsontree", "templates/problem"}, forbidden: impure},
		"templates/cel/library":         {internal: []string{"templates/cel/values"}, forbidden: impure},
		"templates/cel/values":          {internal: []string{"templates/jsontree", "templates/request"}, forbidden: impure},
		"templates/params":              {internal: []string{"templates/cel/values", "templates/jsontree", "templates/problem", "templates/request", "templates/v1alpha1"}, forbidden: impure},
		"templates/problem":             {forbidden: impure},
		"templates/request":             {internal: []string{"templates/jsontree"}, forbidden: impure},
		"templates/v1alpha1":            {forbidden: impure},
		"templates/yamlnode":            {forbidden: impure},
		"templates/fragment":            {internal: []string{"templates/cel", "templates/cel/diagnostics", "templates/cel/values", "templates/jsontree", "templates/params", "templates/problem", "templates/v1alpha1", "templates/validation", "templates/yamlnode"}, forbidden: impure},
		"templates/validation":          {internal: []string{"templates/cel/values", "templates/jsontree", "templates/params", "templates/problem", "templates/v1alpha1"}, forbidden: impure},
		"templates/jsontree":            {forbidden: impure},
		"templates/library":             {forbidden: impure},
		"templates/library/tests":       {forbidden: impure},
		"certs":                         {},
		"manifests":                     {},
		"cmd/pillion/yamledit":          {internal: []string{"templates/jsontree"}, forbidden: impure},
		"cmd/pillion/manifest":          {internal: []string{"cmd/pillion/yamledit", "inject", "inject/schema", "inject/workloads", "templates", "templates/jsontree", "templates/yamlnode"}, forbidden: impure},
		"cmd/pillion/playground":        {internal: []string{"cmd/pillion/manifest", "cmd/pillion/yamledit", "inject", "inject/report/explain", "inject/lint/limits", "inject/policy", "inject/schema", "templates", "templates/jsontree"}, forbidden: impure},
		"cmd/pillion/playground/fields": {internal: []string{"templates/jsontree"}},
		"cmd/pillion/check":             {internal: []string{"certs", "inject", "inject/report/explain", "inject/report/terminal", "manifests", "templates"}, forbidden: impure},
		"cmd/pillion/clitest":           {},
		"cmd/pillion/cli":               {internal: []string{"cmd/pillion/yamledit", "inject", "inject/report/terminal", "templates", "templates/jsontree"}},
		"cmd/pillion/kube":              {internal: []string{"cmd/pillion/cli", "templates"}},
		"cmd/pillion/controller":        {internal: []string{"cmd/pillion/cli", "cmd/pillion/cluster", "cmd/pillion/kube", "cmd/pillion/executor", "inject/report/explain", "inject/rollout", "manifests", "templates"}},
		"cmd/pillion/executor":          {internal: []string{"inject/rollout"}},
		"cmd/pillion/server":            {internal: []string{"certs", "cmd/pillion/cli", "cmd/pillion/kube", "inject", "inject/lint/limits", "inject/webhook", "inject/webhook/authentication", "manifests", "templates"}},
		"cmd/pillion/cluster":           {internal: []string{"certs", "cmd/pillion/check", "cmd/pillion/cli", "cmd/pillion/kube", "cmd/pillion/server", "cmd/pillion/executor", "inject", "inject/report/diff", "inject/report/explain", "inject/lint/limits", "inject/rollout", "inject/report/status", "inject/uninject", "inject/workloads", "manifests", "templates", "templates/jsontree"}},
		"cmd/pillion":                   {internal: []string{"certs", "cmd/pillion/check", "cmd/pillion/cli", "cmd/pillion/cluster", "cmd/pillion/controller", "cmd/pillion/kube", "cmd/pillion/playground", "cmd/pillion/server", "cmd/pillion/executor", "cmd/pillion/manifest", "cmd/pillion/yamledit", "inject", "inject/importer", "inject/report/audit", "inject/report/diff", "inject/report/explain", "inject/lint/limits", "inject/report/terminal", "inject/policy", "inject/rollout", "inject/schema", "inject/report/status", "inject/templatetest", "inject/report/yamldiff", "inject/uninject", "manifests", "templates", "templates/jsontree"}},
	}
	d := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		rule, ok := rules[name]
		if !ok {
			t.Errorf("%s: say here what it may import", name)
		}
		for _, path := range p.Imports {
			own, internal := strings.CutPrefix(path, module+"/")
			if slices.Contains(vocabulary, own) && slices.Contains(rule.internal, "templates") {
				own = "templates"
			}
			switch {
			case internal && !slices.Contains(rule.internal, own),
				!internal && slices.ContainsFunc(rule.forbidden, func(f string) bool { return path == f || strings.HasSuffix(f, "/") && strings.HasPrefix(path, f) }),
				!strings.HasPrefix(name, "cmd/pillion") && (strings.HasPrefix(path, "github.com/spf13/cobra") || strings.HasPrefix(path, "github.com/spf13/viper")),
				name != "inject/webhook" && strings.HasPrefix(path, "k8s.io/api/admission/"),
				name != "cmd/pillion/controller" && strings.HasPrefix(path, "sigs.k8s.io/controller-runtime/"):
				t.Errorf("%s may not import %s", name, path)
			}
		}
	}
}

// TestMerged checks that no file has the marks of a merge conflict.
func TestMerged(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || built(d):
			return cmp.Or(err, fs.SkipDir)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		for _, mark := range []string{"<", ">"} {
			if bytes.Contains(text, []byte("\n"+strings.Repeat(mark, 7)+" ")) {
				t.Errorf("%s has the marks of a conflict", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// built reports whether a folder has nothing of this repository.
func built(d fs.DirEntry) bool {
	return d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "node_modules")
}

// TestFiles checks that each file begins with the SPDX line, and that there are no init functions.
func TestFiles(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || built(d):
			return cmp.Or(err, fs.SkipDir)
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		checkFile(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHouseDocs checks that the comment above a function or a test begins with its name, as Go's own do. A comment that begins with
// another name is one that was forgotten when the function was renamed.
func TestHouseDocs(t *testing.T) {
	comment := regexp.MustCompile(`(?m)^(// ([^ ,\n]+).*\n)(//.*\n)*func (?:\([^)]*\) )?(\w+)[\[(]`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || built(d):
			return cmp.Or(err, fs.SkipDir)
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range comment.FindAllSubmatch(text, -1) {
			if first, name := string(m[2]), string(m[4]); first != name {
				t.Errorf("%s: the comment of %s begins with %q; begin with the name", path, name, first)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkFile(t *testing.T, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Comments) == 0 || file.Comments[0].List[0].Text != "// SPDX-License-Identifier: Apache-2.0" {
		t.Errorf("%s does not begin with the SPDX line", path)
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "init" && f.Recv == nil {
			t.Errorf("%s has an init function", path)
		}
	}
}
