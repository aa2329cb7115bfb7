// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// measured matches what a page says about something that was measured. It does not find each figure, but sections
	// that have some.
	measured = regexp.MustCompile(`(?i)\bmeasured\b|\bmedians?\b|\b(?:two|2) (?:slow )?(?:cores|CPUs)\b|\bin a test\b|\btook\b|\bp99\b|\btimes as\b`)
	// source matches what measures: a test, a benchmark, a target of the Makefile, or the page that make node writes.
	source = regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w*)`|-run '?\\^?(Test\\w+)|(?:`|written by )make ([a-z][a-z0-9-]*)|\\]\\([^)]*FIGURES\\.md\\)")
	// makeCommand matches a target of the Makefile in a code span or in a block with commands.
	makeCommand = regexp.MustCompile("(?m)(?:`|^\\$ (?:[A-Z]+=\\S+ )?)make ((?:[a-z][a-z0-9-]* ?)+)")
	target      = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// TestFigures checks that each section with measured figures names what measures them, and that this exists.
func TestFigures(t *testing.T) {
	t.Parallel()
	exists, sections := programs(t), 0
	for _, page := range userPages(t) {
		text := contents(t, page)
		for section := range strings.SplitSeq(text, "\n## ") {
			title, _, _ := strings.Cut(section, "\n")
			if !measured.MatchString(withoutBlocks(section)) {
				continue
			}
			sections++
			found := source.FindAllStringSubmatch(section, -1)
			if len(found) == 0 {
				t.Errorf("%s, section %q: it has figures (%q), and names no command that measures them", page, title, measured.FindString(withoutBlocks(section)))
			}
			for _, m := range found {
				if name := m[1] + m[2] + m[3]; name != "" && !exists[name] {
					t.Errorf("%s, section %q: there is no %s, which has measured the figures", page, title, m[0])
				}
			}
		}
		for _, m := range makeCommand.FindAllStringSubmatch(text, -1) {
			for name := range strings.FieldsSeq(m[1]) {
				if !exists[name] {
					t.Errorf("%s: the Makefile has no target %s", page, name)
				}
			}
		}
	}
	if sections < 5 {
		t.Errorf("only %d sections with figures are found", sections)
	}
}

func withoutBlocks(section string) string {
	return regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(section, "")
}

// userPages returns the paths of the pages for users and contributors.
func userPages(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"../README.md", "../[^RC]*.md", "../CONTRIBUTING.md", "docs/*.md", "../templates/library/*.md", "../inject/README.md", "../e2e/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no %s: %v", pattern, err)
		}
		paths = append(paths, found...)
	}
	return paths
}

// programs returns the names of all tests and benchmarks, and of the targets of the Makefile.
func programs(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(contents(t, "../Makefile"), -1) {
		names[m[1]] = true
	}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)[A-Z]\w*)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
