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

// page collects lines of at most width runes.
type page struct {
	strings.Builder
	width  int
	colour bool
}

// begin prints the summary.
func (p *page) begin(style, summary string, problems, doubts []string) {
	p.styled(0, style, summary)
	for _, problem := range problems {
		p.styled(0, terminal.Red, "Problem: "+problem)
	}
	for _, doubt := range doubts {
		p.styled(0, terminal.Yellow, "Uncertain: "+doubt)
	}
}

// line prints a string that begins at a column, in as many lines as necessary.
func (p *page) line(column int, text string) { p.styled(column, "", text) }

// styled is line with a color.
func (p *page) styled(column int, style, text string) {
	for _, part := range explain.Wrap(text, p.width-column) {
		p.WriteString(strings.TrimRight(strings.Repeat(" ", column)+p.paint(style, part), " ") + "\n")
	}
}

// paragraph prints a line after an empty one.
func (p *page) paragraph(text string) {
	p.WriteString("\n")
	p.line(0, text)
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

// table prints numbers below heads, with the names first. If it is too wide, it prints a
// sentence for each name.
func (p *page) table(first, pods string, rows []row) {
	heads := []string{pods, "INJECTED", "CURRENT", "OUTDATED", "MISSING", "ALTERED"}
	room, column := p.width, utf8.RuneCountInString(first)
	for _, head := range heads {
		room -= 2 + utf8.RuneCountInString(head)
	}
	p.WriteString("\n")
	if room < column {
		p.sentences(first, heads, rows)
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
	bars := p.colour && whole-column >= len("  ")+terminal.Cells
	fmt.Fprintf(p, "%-*s  %s\n", column, first, strings.Join(heads, "  "))
	for _, row := range rows {
		if utf8.RuneCountInString(row.name) > room {
			p.line(0, row.name)
			row.name = ""
		}
		fmt.Fprintf(p, "%-*s", column, row.name)
		for k, n := range row.cells() {
			p.WriteString("  " + p.paint(row.style(k), fmt.Sprintf("%*d", len(heads[k]), n)))
		}
		if bars {
			p.bar(&row.Tally)
		}
		p.WriteString("\n")
	}
}

// sentences prints a table for a narrow terminal.
func (p *page) sentences(first string, heads []string, rows []row) {
	for _, row := range rows {
		var cells []string
		for k, n := range row.cells() {
			cells = append(cells, fmt.Sprintf("%s %d", strings.ToLower(heads[k]), n))
		}
		p.line(0, fmt.Sprintf("%s %s: %s", strings.ToLower(first), row.name, strings.Join(cells, ", ")))
	}
}

// command prints a command in one line, or, if it is too long, in one line for each part of a
// pipe. It breaks nowhere else, because users paste commands.
func (p *page) command(parts ...string) {
	separator := " "
	if utf8.RuneCountInString(strings.Join(parts, separator)) > p.width-2 {
		separator = "\n    "
	}
	p.WriteString("  " + inject.Visible(strings.Join(parts, separator)) + "\n")
}

// nameWidth is the maximum width of a table's first column. Longer names get their own line.
const nameWidth = 40

func get(pods int) string {
	if pods == 1 {
		return "1 pod gets"
	}
	return fmt.Sprintf("%d pods get", pods)
}

// Commands are commands of this program and of kubectl, with the arguments that select the
// same cluster and templates, and, for Status, the same namespaces.
type Commands struct{ Status, Unlabelled, Explain, Kubectl, Rollout string }

// paint returns a string in a color, if the page has colors.
func (p *page) paint(style, text string) string { return terminal.Text(p.colour, style, text) }

// style returns the color of a cell. Zeros, and the number of all pods, have none.
func (r *row) style(cell int) string {
	states := []explain.State{explain.NotWanted, explain.NotWanted, explain.Current, explain.Outdated, explain.Missing, explain.Altered}
	if r.cells()[cell] == 0 {
		return ""
	}
	return styleOf(states[cell])
}

// bar prints the shares of the states of those pods that should have a sidecar.
func (p *page) bar(t *Tally) {
	var shares []terminal.Share
	for _, state := range []explain.State{explain.Current, explain.Outdated, explain.Missing, explain.Altered} {
		shares = append(shares, terminal.Share{Style: styleOf(state), Count: *t.of(state)})
	}
	if bar := terminal.Bar(terminal.Cells, shares...); bar != "" {
		p.WriteString("  " + bar)
	}
}
