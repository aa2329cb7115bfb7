// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/templates/problem"
)

// page is what status prints.
type page struct{ terminal.Page }

// printSummary prints the summary.
func (p *page) printSummary(style, summary string, problems, doubts []string) {
	p.PrintLine(0, style, summary)
	for _, problem := range problems {
		p.PrintLine(0, terminal.Red, "Problem: "+problem)
	}
	for _, doubt := range doubts {
		p.PrintLine(0, terminal.Yellow, "Uncertain: "+doubt)
	}
}

// printLine prints a string that begins at a column, in as many lines as necessary.
func (p *page) printLine(column int, text string) { p.PrintLine(column, "", text) }

// printParagraph prints a line after an empty one.
func (p *page) printParagraph(text string) {
	p.WriteString("\n")
	p.printLine(0, text)
}

// row is a name with its number of pods and their tally.
type row struct {
	name string
	pods int
	Tally
}

func (r *row) cells() []int {
	return []int{r.pods, r.Injected, r.Current, r.Outdated, r.Missing, r.Altered}
}

// printTable prints numbers below heads, with the names first. If it is too wide, it prints a
// sentence for each name.
func (p *page) printTable(first, pods string, rows []row) {
	heads := []string{pods, "INJECTED", "CURRENT", "OUTDATED", "MISSING", "ALTERED"}
	room, column := p.Width, utf8.RuneCountInString(first)
	for _, head := range heads {
		room -= 2 + utf8.RuneCountInString(head)
	}
	p.WriteString("\n")
	if room < column {
		p.printSentences(first, heads, rows)
		return
	}
	whole := room
	room = min(room, nameWidth)
	for i := range rows {
		rows[i].name = inject.Visible(problem.OneLine(rows[i].name))
		if n := utf8.RuneCountInString(rows[i].name); n <= room {
			column = max(column, n)
		}
	}
	bars := p.Colour && whole-column >= len("  ")+terminal.Cells
	fmt.Fprintf(p, "%-*s  %s\n", column, first, strings.Join(heads, "  "))
	for _, row := range rows {
		if utf8.RuneCountInString(row.name) > room {
			p.printLine(0, row.name)
			row.name = ""
		}
		fmt.Fprintf(p, "%-*s", column, row.name)
		for k, n := range row.cells() {
			p.WriteString("  " + p.Paint(row.cellStyle(k), fmt.Sprintf("%*d", len(heads[k]), n)))
		}
		if bars {
			p.printBar(&row.Tally)
		}
		p.WriteString("\n")
	}
}

// printSentences prints a table for a narrow terminal.
func (p *page) printSentences(first string, heads []string, rows []row) {
	for _, row := range rows {
		var cells []string
		for k, n := range row.cells() {
			cells = append(cells, fmt.Sprintf("%s %d", strings.ToLower(heads[k]), n))
		}
		p.printLine(0, fmt.Sprintf("%s %s: %s", strings.ToLower(first), row.name, strings.Join(cells, ", ")))
	}
}

// printCommand prints a command in one line, or, if it is too long, in one line for each part of a
// pipe. It breaks nowhere else, because users paste commands.
func (p *page) printCommand(parts ...string) {
	separator := " "
	if utf8.RuneCountInString(strings.Join(parts, separator)) > p.Width-2 {
		separator = "\n    "
	}
	p.WriteString("  " + inject.Visible(strings.Join(parts, separator)) + "\n")
}

// nameWidth is the maximum width of a table's first column. Longer names get their own line.
const nameWidth = 40

// getsPhrase returns the subject and the verb of a sentence about pods.
func getsPhrase(pods int) string {
	if pods == 1 {
		return "1 pod gets"
	}
	return fmt.Sprintf("%d pods get", pods)
}

// Commands are commands of this program and of kubectl, with the arguments that select the
// same cluster and templates, and, for Status, the same namespaces. Help is for pods that cannot be created.
type Commands struct {
	explain.Help

	Status, Unlabelled, Explain, Rollout string
}

// cellStyle returns the color of a cell. Zeros, and the number of all pods, have none.
func (r *row) cellStyle(cell int) string {
	states := []explain.State{explain.NotWanted, explain.NotWanted, explain.Current, explain.Outdated, explain.Missing, explain.Altered}
	if r.cells()[cell] == 0 {
		return ""
	}
	return styleOf(states[cell])
}

// printBar prints the shares of the states of those pods that should have a sidecar.
func (p *page) printBar(t *Tally) {
	var shares []terminal.Share
	for _, state := range []explain.State{explain.Current, explain.Outdated, explain.Missing, explain.Altered} {
		shares = append(shares, terminal.Share{Style: styleOf(state), Count: *t.countOf(state)})
	}
	if bar := terminal.Bar(terminal.Cells, shares...); bar != "" {
		p.WriteString("  " + bar)
	}
}
