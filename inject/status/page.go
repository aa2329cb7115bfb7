// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/templates"
)

// page collects lines of at most width runes.
type page struct {
	strings.Builder
	width int
}

// newPage returns a page that begins with the summary.
func newPage(width int, summary string, problems, doubts []string) *page {
	p := &page{width: width}
	p.line(0, summary)
	for _, problem := range problems {
		p.line(0, "Problem: "+problem)
	}
	for _, doubt := range doubts {
		p.line(0, "Uncertain: "+doubt)
	}
	return p
}

// line prints a string that begins at a column, in as many lines as necessary.
func (p *page) line(column int, text string) {
	for _, part := range explain.Wrap(text, p.width-column) {
		p.WriteString(strings.TrimRight(strings.Repeat(" ", column)+part, " ") + "\n")
	}
}

// table prints a title, and numbers below heads, with the names first. If it is too wide, it
// prints a sentence for each name.
func (p *page) table(heads []string, names []string, rows [][]int) {
	for i := range names {
		names[i] = templates.OneLine(names[i])
	}
	room := p.width
	for _, head := range heads[1:] {
		room -= 2 + utf8.RuneCountInString(head)
	}
	p.WriteString("\n")
	if room < utf8.RuneCountInString(heads[0]) {
		p.sentences(heads, names, rows)
		return
	}
	room = min(room, nameWidth)
	column := utf8.RuneCountInString(heads[0])
	for _, name := range names {
		if n := utf8.RuneCountInString(name); n <= room {
			column = max(column, n)
		}
	}
	fmt.Fprintf(p, "%-*s", column, heads[0])
	for _, head := range heads[1:] {
		p.WriteString("  " + head)
	}
	p.WriteString("\n")
	for i, row := range rows {
		name := names[i]
		if utf8.RuneCountInString(name) > room {
			p.line(0, name)
			name = ""
		}
		fmt.Fprintf(p, "%-*s", column, name)
		for k, n := range row {
			fmt.Fprintf(p, "  %*d", len(heads[k+1]), n)
		}
		p.WriteString("\n")
	}
}

// sentences prints a table for a narrow terminal.
func (p *page) sentences(heads, names []string, rows [][]int) {
	for i, row := range rows {
		cells := make([]string, len(row))
		for k, n := range row {
			cells[k] = fmt.Sprintf("%s %d", strings.ToLower(heads[k+1]), n)
		}
		p.line(0, fmt.Sprintf("%s %s: %s", strings.ToLower(heads[0]), names[i], strings.Join(cells, ", ")))
	}
}

// command prints a command in one line, or, if it is too long, in one line for each part of a
// pipe. It breaks nowhere else, because users paste commands.
func (p *page) command(parts ...string) {
	separator := " "
	if utf8.RuneCountInString(strings.Join(parts, separator)) > p.width-2 {
		separator = "\n    "
	}
	p.WriteString("  " + strings.Join(parts, separator) + "\n")
}

// nameWidth is the maximum width of a table's first column. Longer names get their own line.
const nameWidth = 40

func are(pods int) string {
	if pods == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", pods)
}

// Commands are commands of this program and of kubectl, with the arguments that select the
// same cluster and templates, and, for Status, the same namespaces.
type Commands struct{ Status, Unlabelled, Explain, Kubectl string }
