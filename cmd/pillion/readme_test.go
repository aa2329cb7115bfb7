// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCommandsPage: the page's table has every command, and no other.
func TestCommandsPage(t *testing.T) {
	page := contents(t, "../../manifests/docs/commands.md")
	var want, got []string
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() != "help" {
			want = append(want, cmd.CommandPath())
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(pillion [a-z]+)` \\| \\S.* \\|.*\\|$").FindAllStringSubmatch(page, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the page has %q, want %q", got, want)
	}
}

// TestInlineCommands: commands within sentences and tables exist, with their flags.
func TestInlineCommands(t *testing.T) {
	n := 0
	for _, file := range pages(t) {
		for _, m := range regexp.MustCompile("`pillion ([^`]+)`").FindAllStringSubmatch(contents(t, file), -1) {
			words := strings.Fields(m[1])
			cmd, _, err := newRoot().Find(words[:1])
			if words[0] == "COMMAND" {
				continue
			}
			if err != nil {
				t.Errorf("%s: %s: there is no such command: %v", file, m[0], err)
				continue
			}
			n++
			cmd.InitDefaultHelpFlag()
			for _, word := range words[1:] {
				name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
				if dashes := len(word) - len(strings.TrimLeft(word, "-")); dashes == 2 && cmd.Flags().Lookup(name) == nil || dashes == 1 && name != "" && cmd.Flags().ShorthandLookup(name) == nil {
					t.Errorf("%s: %s: there is no flag %s", file, m[0], word)
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d commands are found", n)
	}
}

// TestLinks: every page's links lead to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`) // a colon is one of https://
	n := 0
	for _, file := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(contents(t, file), -1) {
			target := file
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", file, m[0], err)
			} else if m[2] != "" && !headings(t, target)[m[2]] {
				t.Errorf("%s: %s: there is no such heading", file, m[0])
			}
			n++
		}
	}
	if n < 100 {
		t.Errorf("only %d links are found", n)
	}
}

// TestPageLength: a page answers one question.
func TestPageLength(t *testing.T) {
	for _, file := range pages(t) {
		limit := 300
		if file == "../../README.md" {
			limit = 150
		}
		if lines := strings.Count(contents(t, file), "\n"); lines > limit && filepath.Base(file) != "CHANGELOG.md" {
			t.Errorf("%s has %d lines, more than %d", file, lines, limit)
		}
	}
}

// pages returns the Markdown files of the repository.
func pages(t *testing.T) (files []string) {
	t.Helper()
	must(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// headings returns the anchors that GitHub gives to a page's headings.
func headings(t *testing.T, file string) map[string]bool {
	t.Helper()
	slugs := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(contents(t, file), -1) {
		slug := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(h[1]), "")
		slugs[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return slugs
}
