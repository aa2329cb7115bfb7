// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// narrowHelp wraps the help of a command and its subcommands at a width. A template of cobra's
// could do that too, but templates make the linker keep all exported methods: 12 MB.
func narrowHelp(root *cobra.Command, width int) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text strings.Builder
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		fmt.Fprint(out, helpText(text.String(), width))
	})
}

// helpText wraps paragraphs and the rows of tables. It does not wrap the commands in examples,
// because users paste these.
func helpText(text string, width int) string {
	var out strings.Builder
	example := false
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); {
		if line := lines[i]; line != "" && line[0] != ' ' {
			example = line == "Examples:"
		}
		if example {
			out.WriteString(exampleLine(lines[i], width) + "\n")
			i++
			continue
		}
		n := paragraphLines(lines[i:])
		out.WriteString(wrapParagraph(lines[i:i+n], width) + "\n")
		i += n
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// row matches the beginning of a table's row or of a list item. Continuation lines are
// indented by its length.
var row = regexp.MustCompile(`^ +(\* |\S+( \S+)* {2,})`)

// hangingIndent returns the indentation of a line's continuation.
func hangingIndent(line string) int {
	if head := row.FindString(line); head != "" {
		return utf8.RuneCountInString(head)
	}
	return len(line) - len(strings.TrimLeft(line, " "))
}

// paragraphLines returns how many lines belong to the paragraph that the first one begins.
func paragraphLines(lines []string) int {
	n, indent := 1, strings.Repeat(" ", hangingIndent(lines[0]))
	for lines[0] != "" && n < len(lines) && len(lines[n]) > len(indent) && strings.HasPrefix(lines[n], indent) && lines[n][len(indent)] != ' ' && row.FindString(lines[n]) == "" {
		n++
	}
	return n
}

// wrapParagraph returns a paragraph, wrapped if one of its lines is too wide.
func wrapParagraph(lines []string, width int) string {
	const least = 24 // minimum width of the second column
	fits := true
	for _, line := range lines {
		fits = fits && utf8.RuneCountInString(line) <= width
	}
	if fits {
		return strings.Join(lines, "\n")
	}
	indent := hangingIndent(lines[0])
	words := lines[:1:1]
	for _, line := range lines[1:] {
		words = append(words, line[indent:])
	}
	whole := strings.Join(words, " ")
	if width-indent >= least {
		return cli.FoldLine(whole, indent, width)
	}
	const under = 8
	head, rest := strings.TrimRight(whole[:indent], " "), strings.Repeat(" ", under)+whole[indent:]
	return strings.TrimLeft(head+"\n", "\n") + cli.FoldLine(rest, under, width)
}

// exampleLine wraps comments only.
func exampleLine(line string, width int) string {
	const comment = "  # "
	text, ok := strings.CutPrefix(line, comment)
	if !ok {
		return line
	}
	return comment + strings.ReplaceAll(cli.FoldLine(text, 0, width-len(comment)), "\n", "\n"+comment)
}
