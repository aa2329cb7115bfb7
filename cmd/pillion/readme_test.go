// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/testing/golden"
)

// TestEveryCommand checks each command, also those below others: it describes when it fails, its help has an example and fits the
// screen, and a script runs it.
func TestEveryCommand(t *testing.T) {
	scripts := ""
	files, err := filepath.Glob("testdata/script/*.txtar")
	must(t, err)
	for _, file := range files {
		scripts += contents(t, file)
	}
	for _, cmd := range ownCommands(newRoot()) {
		path := cmd.CommandPath()
		if _, ok := cmd.Annotations[cli.Failure]; !ok {
			t.Errorf("%s does not describe when it exits with 1: use cli.FailsIf", path)
		}
		if !regexp.MustCompile(`(?m)^(exec|! exec|code \d) ` + path + `\b`).MatchString(scripts) {
			t.Errorf("no script in testdata/script runs %s", path)
		}
		var help bytes.Buffer
		words := append(strings.Fields(path)[1:], "--help")
		if code := run(words, nil, &help, &help); code != exitOK || !strings.Contains(help.String(), "Examples:") {
			t.Errorf("the help of %s has no examples (exit code %d)", path, code)
		}
		if line := regexp.MustCompile(".{101}").FindString(help.String()); line != "" {
			t.Errorf("the help of %s has more than 100 columns: %s", path, line)
		}
	}
}

// ownCommands returns the commands below a command, at all depths, except those that cobra makes: help, and one for each shell.
func ownCommands(of *cobra.Command) (all []*cobra.Command) {
	for _, cmd := range of.Commands() {
		if cmd.Name() != "help" && of.Name() != "completion" {
			all = append(append(all, cmd), ownCommands(cmd)...)
		}
	}
	return all
}

// TestCommandsPage compares the table of the page with the commands. make golden writes it.
func TestCommandsPage(t *testing.T) {
	const page, opening, closing = "../../manifests/docs/commands.md", "<!-- commands: written by make golden -->\n", "<!-- end of commands -->\n"
	var table strings.Builder
	for _, cmd := range ownCommands(newRoot()) {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", cmd.CommandPath(), cmd.Short, cmd.Annotations[cli.Failure])
	}
	before, rest, opened := strings.Cut(contents(t, page), opening)
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		t.Fatalf("%s has no %q before %q", page, opening, closing)
	}
	golden.File(t, page, []byte(before+opening+"| command | does | exits with 1 if |\n|---|---|---|\n"+table.String()+closing+after))
}

// TestInlineCommands checks that commands within sentences and tables exist, with their flags.
func TestInlineCommands(t *testing.T) {
	n := 0
	for _, file := range pages(t) {
		for _, m := range regexp.MustCompile("`pillion ([^`]+)`").FindAllStringSubmatch(contents(t, file), -1) {
			words := strings.Fields(m[1])
			cmd, _, err := newRoot().Find(words)
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

// TestLinks checks that every link of a page leads to an existing file and heading, and the name of a test or of a function to the file
// with it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile("(?:`((?:Test|Fuzz)\\w+)`)?" + `\]\(([^)#:]*)(?:#([^)]*))?\)`) // a colon is one of https://
	// A name such as `Planner.Plan`, and a link to a Go file in brackets after it.
	function := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`\\s\\(\\[`[^`]+`\\]\\(([^)#:]+\\.go)\\)")
	n := 0
	for _, file := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(contents(t, file), -1) {
			target := file
			if m[2] != "" {
				target = filepath.Join(filepath.Dir(file), m[2])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", file, m[0], err)
			} else if m[1] != "" && filepath.Ext(target) == ".go" && !strings.Contains(contents(t, target), "func "+m[1]+"(") {
				t.Errorf("%s: %s: there is no such test in the file", file, m[0])
			} else if m[3] != "" && !headings(t, target)[m[3]] {
				t.Errorf("%s: %s: there is no such heading", file, m[0])
			}
			n++
		}
		for _, m := range function.FindAllStringSubmatch(contents(t, file), -1) {
			if defined := regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type )` + m[1] + `\b`); !defined.MatchString(contents(t, filepath.Join(filepath.Dir(file), m[2]))) {
				t.Errorf("%s: %s: there is no such function or type in the file", file, m[0])
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d links are found", n)
	}
}

// TestIndex checks that the index of the documentation has each of its pages in a table, from which the site takes them.
func TestIndex(t *testing.T) {
	const index = "../../manifests/docs/README.md"
	var rows strings.Builder
	for line := range strings.Lines(contents(t, index)) {
		if strings.HasPrefix(line, "|") {
			rows.WriteString(line)
		}
	}
	for _, file := range pages(t) {
		if filepath.Dir(file) == filepath.Dir(index) && file != index && !strings.Contains(rows.String(), "("+filepath.Base(file)+")") {
			t.Errorf("no table of %s has a link to %s", index, file)
		}
	}
}

// pages returns the Markdown files of the repository.
func pages(t *testing.T) (files []string) {
	t.Helper()
	must(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && d.Name() == "node_modules" {
			return fs.SkipDir
		}
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
