// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHouseNumbers reports how easy names lead to what a reader looks for (go test -v). The numbers are for comparisons with other
// projects and are no limits. It fails only if it counts nothing.
func TestHouseNumbers(t *testing.T) {
	packages := map[string]*houseNumbers{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case built(d) || d.IsDir() && d.Name() == "e2e":
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_generated.go"):
			return nil
		}
		dir := filepath.Dir(path)
		if packages[dir] == nil {
			packages[dir] = &houseNumbers{name: strings.TrimPrefix(dir, "../")}
		}
		return packages[dir].countFile(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	var all houseNumbers
	for _, p := range packages {
		all.files, all.lines, all.comments = all.files+p.files, all.lines+p.lines, all.comments+p.comments
		all.functions, all.oneWord, all.undocumented = all.functions+p.functions, all.oneWord+p.oneWord, all.undocumented+p.undocumented
		if p.lines > all.largest {
			all.name, all.largest = p.name, p.lines
		}
	}
	if all.functions < 1000 {
		t.Fatalf("only %d functions are found", all.functions)
	}
	t.Logf("%d packages with %d files and %d lines of code; the largest is %s with %d files and %d lines",
		len(packages), all.files, all.lines, all.name, packages["../"+all.name].files, all.largest)
	t.Logf("%d of %d unexported functions have a name of one word (%d %%)", all.oneWord, all.functions, 100*all.oneWord/all.functions)
	t.Logf("%d %% of the lines are comments; %d exported functions and types have none", 100*all.comments/(all.comments+all.lines), all.undocumented)
}

// houseNumbers are the counts of a package.
type houseNumbers struct {
	name                             string
	files, lines, comments, largest  int
	functions, oneWord, undocumented int
}

var oneWord = regexp.MustCompile(`^[a-z0-9]+$`)

// countFile adds the counts of a file. Lines are without blank lines.
func (h *houseNumbers) countFile(path string) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	h.files++
	code, comment := map[int]bool{}, map[int]bool{}
	for _, group := range file.Comments {
		for line := fset.Position(group.Pos()).Line; line <= fset.Position(group.End()).Line; line++ {
			comment[line] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.CommentGroup, *ast.Comment:
			return false
		}
		code[fset.Position(n.Pos()).Line], code[fset.Position(n.End()-1).Line] = true, true
		return true
	})
	h.lines += len(code)
	for line := range comment {
		if !code[line] {
			h.comments++
		}
	}
	for _, d := range file.Decls {
		h.countDeclaration(d)
	}
	return nil
}

func (h *houseNumbers) countDeclaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		switch {
		case !d.Name.IsExported():
			h.functions++
			if oneWord.MatchString(d.Name.Name) {
				h.oneWord++
			}
		case d.Doc == nil:
			h.undocumented++
		}
	case *ast.GenDecl:
		if d.Tok == token.TYPE && d.Doc == nil && slices.ContainsFunc(d.Specs, func(s ast.Spec) bool {
			of := s.(*ast.TypeSpec)
			return of.Name.IsExported() && of.Doc == nil
		}) {
			h.undocumented++
		}
	}
}
