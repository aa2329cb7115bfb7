// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadme runs the README's transcripts, and its mistakes.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(readme), "$ cat web.yaml\n")
	manifest, rest, _ := strings.Cut(rest, "$ pillion inject")
	_, rest, _ = strings.Cut(rest, "\n")
	shown, _, _ := strings.Cut(rest, "...\n")

	file := filepath.Join(t.TempDir(), "web.yaml")
	must(t, os.WriteFile(file, []byte(manifest), 0o600))
	var out, report bytes.Buffer
	o := &injectOptions{files: []string{file}, templates: []string{"../../templates/library"}, namespace: "default", output: "yaml"}
	must(t, o.run(nil, &out, &report))
	for line := range strings.Lines(shown) {
		if added, ok := strings.CutPrefix(line, "> "); ok && !strings.Contains(out.String(), added) {
			t.Errorf("the output has no line %q", added)
		}
	}
	if told := report.String(); !strings.HasPrefix(shown, told) {
		t.Errorf("the report is\n%sand the README shows\n%s", told, shown)
	}

	explain := "explain -f " + file + " --templates ../../templates/library"
	for command, typed := range map[string]string{
		explain:                        "$ pillion explain -f ",
		"lint ../../templates/library": "$ pillion lint templates/library",
		explain + " --namespace shop --namespace-label pillion.dev/inject=shadow": "pillion.dev/inject=shadow\n$ pillion explain ",
	} {
		_, rest, _ := strings.Cut(string(readme), typed)
		_, shown, _ := strings.Cut(rest, "\n")
		shown, _, _ = strings.Cut(shown, "```")
		out.Reset()
		if code := run(strings.Fields(command), nil, &out, &out); code != exitOK {
			t.Errorf("%s: exit code %d", command, code)
		}
		for line := range strings.Lines(shown) {
			if line != "...\n" && !strings.HasPrefix(line, "$ ") && !strings.Contains(out.String(), line) {
				t.Errorf("%s does not say %q:\n%s", command, line, &out)
			}
		}
	}

	_, template, _ := strings.Cut(string(readme), "```yaml\napiVersion: pillion.dev/")
	template, _, _ = strings.Cut(template, "```")
	template = strings.Replace(template, "runtimeClassName", "runtimeClassNam", 1)
	template = strings.Replace(template, "        image:", "        imgae:", 1)
	t.Chdir(t.TempDir())
	must(t, os.Mkdir("templates", 0o700))
	must(t, os.WriteFile("templates/log-agent.yaml", []byte("apiVersion: pillion.dev/"+template), 0o600))
	_, err = loadTemplates([]string{"templates/"})
	if err == nil || !strings.Contains(string(readme), fold(nil, err.Error())) {
		t.Errorf("the README does not show\n%v", err)
	}
}

// TestReadmeCommands: the README's table has each command, and each command it.
func TestReadmeCommands(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	must(t, err)
	var want, got []string
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() != "help" {
			want = append(want, cmd.CommandPath())
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(pillion [a-z]+)` \\| \\S.* \\|.*\\|$").FindAllStringSubmatch(string(readme), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the README has %q, want %q", got, want)
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
