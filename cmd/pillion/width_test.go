// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"
)

// tooWide are the lines of more than width runes, but for what is not broken:
// a word alone, such as a path.
func tooWide(text string, width int) (wide []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > width && strings.Contains(strings.TrimSpace(line), " ") {
			wide = append(wide, line)
		}
	}
	return wide
}

// narrowMain is the program for the scripts; it fails where its text has a wide line.
// Documents and lines of the log are not text.
func narrowMain() {
	var out, told bytes.Buffer
	code := runAs(os.Args[0], os.Args[1:], os.Stdin, io.MultiWriter(os.Stdout, &out), io.MultiWriter(os.Stderr, &told))
	has := func(words ...string) bool {
		return slices.ContainsFunc(os.Args, func(arg string) bool { return slices.Contains(words, arg) })
	}
	if has("inject", "uninject", "policy", "completion", "json", "yaml", "--print-config") && !has("--help", "help") {
		out.Reset()
	}
	if strings.HasPrefix(told.String(), "{") {
		told.Reset()
	}
	if width := widthOf(nil); len(tooWide(out.String()+told.String(), width)) > 0 {
		fmt.Fprintf(os.Stderr, "over %d columns: %q\n", width, tooWide(out.String()+told.String(), width))
		code = 99
	}
	os.Exit(code)
}

// TestWidth: whatever shows what the command says, and its help, is within textWidth. What it
// says in scripts is held by [narrowMain].
func TestWidth(t *testing.T) {
	shown := map[string]string{}
	for _, pattern := range []string{"testdata/certs/*.txt", "testdata/explain/*.txt", "../../e2e/testdata/*.txt"} {
		for _, file := range glob(t, pattern) {
			shown[file] = contents(t, file)
		}
	}
	for _, pattern := range []string{"../../inject/explain/testdata/*.txtar", "../../inject/survey/testdata/*.txtar"} {
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
	for _, v := range []version{
		{Version: "v0.12.12", Revision: strings.Repeat("0", 40), Go: "go1.26.10", Platform: "windows/amd64"},
		{Version: "v0.0.0-20261121000000-" + strings.Repeat("0", 12) + "+dirty", Revision: strings.Repeat("0", 40), Modified: true, Go: "go1.26.10", Platform: "windows/amd64"},
	} {
		shown[v.Version] = v.String()
	}
	for where, text := range shown {
		if text == "" {
			t.Errorf("%s shows nothing", where)
		}
		for _, line := range tooWide(text, textWidth) {
			// What is typed, and what kubectl puts on one line.
			if !strings.HasPrefix(line, "$ ") && !strings.HasPrefix(line, "Warning: ") {
				t.Errorf("%s: over %d columns: %s", where, textWidth, line)
			}
		}
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

// TestWidthOf: $COLUMNS says how wide text is, unless it says nothing.
func TestWidthOf(t *testing.T) {
	for columns, want := range map[string]int{"": textWidth, "80": 80, "1": minWidth, "250": 250, "0": textWidth, "-80": textWidth, "wide": textWidth, "99999999999999999999": textWidth} {
		t.Setenv("COLUMNS", columns)
		if got := widthOf(new(bytes.Buffer)); got != want {
			t.Errorf("COLUMNS=%s: %d columns, want %d", columns, got, want)
		}
	}
}

// TestHelpWidth: at every width the help of every command has the same words, and only its examples are wider.
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
		for columns := minWidth; columns < 130; columns++ {
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

func TestFold(t *testing.T) {
	t.Parallel()
	path := strings.Repeat("/folder", 20) + "/file.yaml:3:"
	word := strings.Repeat("ä", 48)
	for text, want := range map[string]string{
		"":                                   "",
		"a  b\n":                             "a  b\n",
		word + "  " + word + "12\nx":         word + "  " + word + "12\nx",
		word + "  " + word + "123\nx":        word + " \n    " + word + "123\nx",
		path + " key: wrong":                 path + "\n    key: wrong",
		"x:1: " + word + "\n" + "y:2: short": "x:1: " + word + "\ny:2: short",
	} {
		if got := fold(nil, text); got != want {
			t.Errorf("fold(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestFoldLine: at every width no line is wider unless it is a word, and without the breaks it is the same text.
func TestFoldLine(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var words []string
		for range random.IntN(30) {
			words = append(words, strings.Repeat("ä", random.IntN(12)*random.IntN(8)))
		}
		line, width := strings.Join(words, " "), minWidth+random.IntN(100)
		folded := foldLine(line, 4, width)
		if got := strings.ReplaceAll(folded, "\n    ", " "); got != line {
			t.Errorf("%q became %q", line, got)
		}
		if wide := tooWide(folded, width); len(wide) > 0 {
			t.Errorf("over %d columns: %q", width, wide)
		}
	}
}
