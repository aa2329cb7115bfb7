// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// narrowMain is the program for the scripts; it fails where its text has a wide line.
// Documents and lines of the log are not text.
func narrowMain() {
	var out, told bytes.Buffer
	code := runAs(os.Args[0], os.Args[1:], os.Stdin, io.MultiWriter(os.Stdout, &out), io.MultiWriter(os.Stderr, &told))
	has := func(words ...string) bool {
		return slices.ContainsFunc(os.Args, func(arg string) bool { return slices.Contains(words, arg) })
	}
	if has("inject", "uninject", "import", "policy", "completion", "json", "yaml", "junit", "--print-config") && !has("--help", "help") {
		out.Reset()
	}
	if strings.HasPrefix(told.String(), "{") {
		told.Reset()
	}
	if width := cli.WidthOf(nil); len(tooWide(out.String()+told.String(), width)) > 0 {
		fmt.Fprintf(os.Stderr, "over %d columns: %q\n", width, tooWide(out.String()+told.String(), width))
		code = 99
	}
	os.Exit(code)
}

// TestWidth checks that all examples of output and help fit into textWidth. [narrowMain] checks the
// output in scripts.
func TestWidth(t *testing.T) {
	shown := map[string]string{}
	for _, pattern := range []string{"testdata/certs/*.txt", "testdata/explain/*.txt", "../../e2e/testdata/*.txt"} {
		for _, file := range glob(t, pattern) {
			shown[file] = contents(t, file)
		}
	}
	for _, pattern := range []string{"../../inject/report/explain/testdata/*.txtar", "../../inject/report/status/testdata/*.txtar"} {
		for _, file := range glob(t, pattern) {
			for _, f := range txtar.Parse([]byte(contents(t, file))).Files {
				if filepath.Ext(f.Name) == ".txt" {
					shown[file+" "+f.Name] = string(f.Data)
				}
			}
		}
	}
	for _, pattern := range []string{"../../*.md", "../../*/*.md", "../../*/*/*.md"} {
		for _, file := range glob(t, pattern) {
			for _, block := range strings.Split(contents(t, file), "```console\n")[1:] {
				block, _, _ = strings.Cut(block, "```")
				shown[file] += block
			}
		}
	}
	eachCommand(newRoot(), func(cmd *cobra.Command) {
		var help bytes.Buffer
		runAs("kubectl-pillion", append(strings.Fields(cmd.CommandPath())[1:], "--help"), nil, &help, &help) // with the longer name
		shown[cmd.CommandPath()+" --help"] = help.String()
		if untold := regexp.MustCompile(`--[a-z-]+ (string|int|duration)[a-zA-Z]* `).FindString(help.String()); untold != "" {
			t.Errorf("%s: of what kind is %s?", cmd.CommandPath(), untold)
		}
	})
	for _, v := range []cli.Version{
		{Version: "v0.12.12", Revision: strings.Repeat("0", 40), Go: "go1.26.10", Platform: "windows/amd64"},
		{Version: "v0.0.0-20261121000000-" + strings.Repeat("0", 12) + "+dirty", Revision: strings.Repeat("0", 40), Modified: true, Go: "go1.26.10", Platform: "windows/amd64"},
	} {
		shown[v.Version] = v.String()
	}
	for where, text := range shown {
		if text == "" {
			t.Errorf("%s shows nothing", where)
		}
		for _, line := range tooWide(text, cli.TextWidth) {
			// What is typed, commands to copy, and what kubectl puts on one line.
			if !strings.HasPrefix(line, "$ ") && !strings.HasPrefix(line, "Warning: ") && !strings.HasPrefix(strings.TrimLeft(line, " `"), "kubectl ") {
				t.Errorf("%s: over %d columns: %s", where, cli.TextWidth, line)
			}
		}
	}
}

// TestPiped checks that output that does not go to a terminal is the same with more lines if it is wrapped: a long sentence is one
// line, and no table is padded to the width.
func TestPiped(t *testing.T) {
	a := explainAPI(t)
	file, lines, wrapped := a.kubeconfig(t), 0, 0
	for _, command := range []string{"explain pod/web -n shop -v", "status", "certs", "diff --without agent", "lint nowhere/that/is/a/folder/whose/name/is/so/long/that/the/whole/sentence/needs/a/second/line"} {
		printed := func(columns string) string {
			t.Setenv("COLUMNS", columns)
			args := strings.Fields(command)
			if !strings.Contains(command, "lint") {
				args = append(args, "--kubeconfig", file)
			}
			stdout, stderr, _ := runWords(args...)
			return stdout + stderr
		}
		piped, narrow := printed(""), printed("90")
		if got, want := strings.Fields(piped), strings.Fields(narrow); !slices.Equal(got, want) {
			t.Errorf("%s: the words differ:\n%s\n%s", command, piped, narrow)
		}
		lines += strings.Count(piped, "\n")
		wrapped += strings.Count(narrow, "\n")
		if len(piped) > len(narrow)+1000 {
			t.Errorf("%s: padding:\n%s\n%s", command, piped, narrow)
		}
	}
	if wrapped < lines+5 {
		t.Errorf("%d lines, and %d wrapped", lines, wrapped)
	}
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		eachCommand(c, do)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must(t, err)
	if len(files) == 0 {
		t.Errorf("there is no %s", pattern)
	}
	return files
}

func contents(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// TestHelpWidth checks that at every width, the help of every command has the same words, and that
// only its examples are wider.
func TestHelpWidth(t *testing.T) {
	eachCommand(newRoot(), func(cmd *cobra.Command) {
		help := func(columns int) string {
			t.Setenv("COLUMNS", fmt.Sprint(columns))
			var out bytes.Buffer
			run(append(strings.Fields(cmd.CommandPath())[1:], "--help"), nil, &out, &out)
			return out.String()
		}
		words := func(text string) []string { return strings.Fields(strings.ReplaceAll(text, "\n  # ", " ")) }
		want := words(help(1000))
		for columns := cli.MinWidth; columns < 130; columns++ {
			text := help(columns)
			if got := words(text); !slices.Equal(got, want) {
				t.Errorf("%s: the words of %d columns are not those of 1000:\n%s", cmd.CommandPath(), columns, text)
			}
			head, examples, _ := strings.Cut(text, "Examples:\n")
			_, flags, _ := strings.Cut(examples, "\nFlags:\n")
			if wide := tooWide(head+flags, columns); len(wide) > 0 {
				t.Errorf("%s: over %d columns: %q", cmd.CommandPath(), columns, wide)
			}
		}
	})
}
