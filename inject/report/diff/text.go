// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Text returns the report for users in lines of this width, except those of diffs. It prints at most that
// number of diffs.
func (r *Report) Text(width int, colour bool, diffs int) string {
	p := &terminal.Page{Width: width, Colour: colour}
	p.PrintLine(0, terminal.Bold, r.Summary)
	for _, problem := range r.Problems {
		p.PrintLine(0, terminal.Red, "Problem: "+problem)
	}
	for i := range r.Templates {
		r.Templates[i].printTo(p)
	}
	for i, d := range r.Diffs {
		if i == diffs {
			break
		}
		p.WriteString("\n")
		p.PrintLine(0, terminal.Bold, d.title())
		d.printTo(p)
	}
	if more := len(r.Diffs) - max(0, diffs); more > 0 {
		p.WriteString("\n")
		p.PrintLine(0, "", fmt.Sprintf("%s not shown; use --diffs %d, or -o json.", explain.Plural(more, "more diff"), len(r.Diffs)))
	}
	for i, note := range r.Notes {
		if i == 0 {
			p.WriteString("\n")
		}
		p.PrintLine(0, "", "Note: "+note)
	}
	return p.String()
}

func (t *Template) printTo(p *terminal.Page) {
	p.WriteString("\n")
	p.PrintLine(0, terminal.Bold, t.title())
	if len(t.Causes) == 0 {
		p.PrintLine(2, "", "no pod changes")
	}
	for i := range t.Causes {
		c := &t.Causes[i]
		style := ""
		switch c.Effect {
		case Rejected, Fails:
			style = terminal.Red
		case Loses:
			if c.How == rollout.NewPod { // otherwise another template takes its place
				style = terminal.Red
			}
		case Gets, Accepted:
			style = terminal.Green
		}
		const column = 12
		p.PrintRow("  "+string(c.Effect), column, style, c.formatLine())
	}
}

func (t *Template) title() string {
	name := problem.OneLine(t.Template)
	switch {
	case name == "":
		return "no template"
	case t.From == "" && t.To != "":
		return fmt.Sprintf("%s (new, revision %s)", name, t.To)
	case t.To == "" && t.From != "":
		return fmt.Sprintf("%s (removed, revision %s)", name, t.From)
	case t.From != t.To:
		return fmt.Sprintf("%s (revision %s -> %s)", name, t.From, t.To)
	}
	return fmt.Sprintf("%s (not changed itself)", name)
}

func (c *Cause) formatLine() string {
	text := fmt.Sprintf("%s of %s", explain.Plural(c.Pods, "pod"), explain.Plural(c.Owners, "workload"))
	if c.Effect == Changes || c.How != rollout.NewPod && c.How != "" {
		text += ", " + howPhrases()[c.How]
	}
	if c.By != "" {
		text += ", by " + c.By
	}
	if len(c.Fields) > 0 && c.How != rollout.Record {
		text += ": " + joinNames(c.Fields)
	}
	if c.Why != "" {
		text += ": " + c.Why
	}
	if c.Effect == Rejected || c.Effect == Fails {
		text += " (for example " + c.Example + ")"
	}
	return text
}

// howPhrases describes how running pods get a change.
func howPhrases() map[rollout.How]string {
	return map[rollout.How]string{
		rollout.NewPod: "needs new pods", rollout.InPlace: "in place", rollout.Resize: "in place, by a resize", rollout.Record: "only the record of the revision",
	}
}

// joinNames joins the first names.
func joinNames(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// title names the owners of a diff.
func (d *Diff) title() string {
	return fmt.Sprintf("%s (%s):", joinNames(d.Owners), explain.Plural(d.Pods, "pod"))
}

// printTo prints the lines of a diff.
func (d *Diff) printTo(p *terminal.Page) {
	for line := range strings.Lines(inject.Visible(d.Diff)) {
		line = strings.TrimSuffix(line, "\n")
		style := ""
		switch {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "):
			style = terminal.Bold
		case strings.HasPrefix(line, "@@"):
			style = terminal.Cyan
		case strings.HasPrefix(line, "+"):
			style = terminal.Green
		case strings.HasPrefix(line, "-"):
			style = terminal.Red
		}
		p.WriteString(p.Paint(style, line) + "\n")
	}
}
