// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPractices checks that every row of the page's table names tests and files that exist.
func TestPractices(t *testing.T) {
	page, err := os.ReadFile("docs/good-practices.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "|---|---|---|\n")
	tests := allTests(t)
	evidence := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`|\\]\\(([^#)]+)\\)")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if len(rows) < 30 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows {
		found := evidence.FindAllStringSubmatch(row, -1)
		if len(found) == 0 || strings.Count(row, "|") != 4 {
			t.Errorf("no test and no file, or not three cells: %s", row)
		}
		for _, m := range found {
			if m[1] != "" && !tests[m[1]] {
				t.Errorf("there is no %s: %s", m[1], row)
			}
			if _, err := os.Stat(filepath.Join("docs", m[2])); m[2] != "" && err != nil {
				t.Errorf("%v: %s", err, row)
			}
		}
	}
}

// TestNamesOnPages checks that every test, file and folder that a page names exists. A path with
// NAME or a pattern may match any file.
func TestNamesOnPages(t *testing.T) {
	tests := allTests(t)
	span := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+|(?:cmd|inject|templates|certs|manifests|examples)/[\\w./-]+)`")
	n := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		for _, m := range span.FindAllSubmatch(page, -1) {
			name := string(m[1])
			n++
			_, missing := os.Stat(filepath.Join("..", name))
			if !tests[name] && missing != nil && !strings.Contains(name, "NAME") {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
		return err
	})
	if err != nil || n < 100 {
		t.Errorf("%d names are found, %v", n, err)
	}
}

// TestNamedTests checks that every test exists that the Makefile names.
func TestNamedTests(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tests := allTests(t)
	for _, variable := range []string{"ALONE", "ON_OLDER", "ON_NODE"} {
		m := regexp.MustCompile(`(?m)^` + variable + ` += (.*)$`).FindSubmatch(makefile)
		if m == nil {
			t.Errorf("the Makefile has no %s", variable)
			continue
		}
		for name := range strings.SplitSeq(string(m[1]), "|") {
			if !tests[name] {
				t.Errorf("%s: there is no %s", variable, name)
			}
		}
	}
}

// allTests are the names of all tests and fuzz targets, of all modules.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
