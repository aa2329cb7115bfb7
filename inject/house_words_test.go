// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestHouseStrings checks the strings of the product, which are errors, help and messages, against
// the rules for prose. Vale itself reads only comments and pages.
func TestHouseStrings(t *testing.T) {
	rules := proseRules(t)
	for text, want := range map[string]string{
		"the pod was refused where it is old": "refused, where it is", "behaviour": "behaviour", "the pod is denied if it is old": "",
	} {
		if found := broken(rules, text); strings.Join(slices.Sorted(maps.Keys(found)), ", ") != want {
			t.Errorf("%q: found %v, want %q", text, found, want)
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() && (d.Name() == ".git" || path == "../e2e"):
			return cmp.Or(err, fs.SkipDir)
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, literal := range literals(file) {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return err
			}
			for word, message := range broken(rules, text) {
				t.Errorf("%s: %s, in %q", files.Position(literal.Pos()), fmt.Sprintf(message, word), text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// literals returns the strings of a file that users may see: no imports, no tags of fields and no
// regular expressions.
func literals(file *ast.File) (all []*ast.BasicLit) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "MustCompile" {
				return false
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				all = append(all, n)
			}
		}
		return true
	})
	return all
}

// proseRules returns the messages of Vale's rules, by what they forbid. A message has a %s for the
// words that were found.
func proseRules(t *testing.T) map[*regexp.Regexp]string {
	t.Helper()
	paths, err := filepath.Glob("../.vale/Pillion/*.yml")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no rules", err)
	}
	lookahead := regexp.MustCompile(`\(\?!.*?\)`) // Go has none
	rules := map[*regexp.Regexp]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		var rule struct {
			Message    string
			IgnoreCase bool
			Swap       map[string]string
			Tokens     []string
		}
		if err = cmp.Or(err, yaml.Unmarshal(text, &rule)); err != nil {
			t.Fatal(err)
		}
		add := func(pattern, message string) {
			if rule.IgnoreCase {
				pattern = "(?i)" + pattern
			}
			rules[regexp.MustCompile(`\b(?:`+lookahead.ReplaceAllString(pattern, "")+`)`)] = message
		}
		for pattern, instead := range rule.Swap {
			add(pattern, strings.Replace(rule.Message, "%s", strings.ReplaceAll(instead, "%", "%%"), 1))
		}
		for _, pattern := range rule.Tokens {
			add(pattern, rule.Message)
		}
	}
	return rules
}

// broken returns the messages of the rules that a string breaks, by the words that break them.
func broken(rules map[*regexp.Regexp]string, text string) map[string]string {
	found := map[string]string{}
	for rule, message := range rules {
		for _, words := range rule.FindAllString(text, -1) {
			found[words] = message
		}
	}
	return found
}
