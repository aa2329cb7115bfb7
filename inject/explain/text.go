// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// width is what a line has room for.
const width = 100

// The colours of a terminal (ECMA-48, SGR).
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	reset  = "\x1b[0m"
)

// Text is the report for people.
func (r *Report) Text(colour bool) string {
	p := &page{colour: colour}
	p.line(bold, r.title())
	p.line("", r.Summary)
	for _, name := range slices.Sorted(maps.Keys(r.Gone)) {
		p.line(yellow, fmt.Sprintf("It says that %s was injected, by revision %s, and there is no such template here; if it was injected by others than these, name those.", name, r.Gone[name]))
	}
	if r.Called != nil {
		p.webhooks(r)
	}
	for i := range r.Templates {
		p.template(r, &r.Templates[i])
	}
	if r.Called == nil || *r.Called {
		p.final(r)
	}
	return p.String()
}

func (r *Report) title() string {
	title := r.Object.Kind + "/" + r.Object.Name
	if r.Object.Namespace != "" {
		title += " in the namespace " + r.Object.Namespace
	}
	return title
}

// page is text in lines of at most width runes.
type page struct {
	strings.Builder
	colour bool
}

// line writes text over as many lines as it needs.
func (p *page) line(style, text string) { p.row("", 0, style, text) }

// row writes text behind a head, and further lines under the text.
func (p *page) row(head string, column int, style, text string) {
	for i, part := range Wrap(text, width-column) {
		if i > 0 {
			head = strings.Repeat(" ", column)
		}
		if p.colour && style != "" {
			part = style + part + reset
		}
		p.WriteString(strings.TrimRight(head+part, " ") + "\n")
	}
}

// Wrap cuts text into lines of at most room runes: at spaces, and in a word that is
// longer than a line.
func Wrap(text string, room int) []string {
	text = strings.Join(strings.Fields(text), " ")
	var lines []string
	for utf8.RuneCountInString(text) > room {
		runes := []rune(text)
		at := room
		for at > room/2 && runes[at] != ' ' {
			at--
		}
		if runes[at] != ' ' {
			at = room
		}
		lines = append(lines, string(runes[:at]))
		text = strings.TrimPrefix(string(runes[at:]), " ")
	}
	return append(lines, text)
}

func (p *page) webhooks(r *Report) {
	if len(r.Webhooks) == 0 {
		p.line(red, "No webhook configuration of Pillion's is installed.")
	}
	for _, w := range r.Webhooks {
		style, word := dim, "not called: "
		if w.Called {
			style, word = "", "called: "
		}
		p.row(fmt.Sprintf("  %-11s", w.Type), 13, style, w.Name+" is "+word+w.Reason)
	}
}

// column is where the second column of a template's part begins.
const column = 16

func (p *page) template(r *Report, t *Template) {
	outcome := r.Outcome(t)
	style := yellow
	switch {
	case t.Code == inject.CodeInjected && !r.Object.Live, t.Code == inject.CodePresent && outcome != string(Altered):
		style = green
	case t.Code != inject.CodeNotRequested && t.Code != inject.CodeNotOptedIn && t.Code != inject.CodePodOptedOut:
		style = red
	}
	p.WriteString("\n")
	p.line(bold+style, fmt.Sprintf("%s: %s", t.Template, outcome))
	p.pair("because", "", fmt.Sprintf("%s (%s)", t.Sentence(), t.Code))
	p.pair("revision", "", t.Revision)
	if t.InjectedBy != "" && t.InjectedBy != t.Revision {
		p.pair("injected by", "", "revision "+t.InjectedBy)
	}
	p.places(r, t)
	name := "parameters"
	for _, v := range t.Params {
		p.pair(name, "", fmt.Sprintf("%s = %s (%s)", v.Name, value(v.Text), origin(v.Source)))
		name = ""
	}
	name = "passed rules"
	for _, s := range t.Passed {
		p.pair(name, dim, fmt.Sprintf("%s: %s", s.Code, s.Message))
		name = ""
	}
}

func value(text string) string {
	if text == "" {
		return `""`
	}
	return text
}

func origin(source string) string {
	if source == templates.FromDefault {
		return "default"
	}
	return "the " + source + "'s annotation"
}

func (p *page) pair(name, style, text string) {
	p.row(fmt.Sprintf("  %-*s", column-2, name), column, style, text)
}

func (p *page) places(r *Report, t *Template) {
	name := "adds"
	if r.Object.Live {
		name = "lacks"
	}
	for _, place := range t.Added {
		p.pair(name, "", fmt.Sprintf("%s: %s", where(place), inject.Brief(place.Template)))
		name = ""
	}
	for _, place := range t.Kept {
		p.pair("keeps", "", fmt.Sprintf("%s: the pod's %s, not %s", where(place), clip(place.Pod), clip(place.Template)))
	}
	for _, o := range t.Obstacles {
		p.pair("in the way", "", where(o.Place))
	}
	for _, note := range t.Notes {
		p.pair("note", "", note)
	}
}

// clip shows the beginning of a long value.
func clip(text string) string {
	if runes := []rune(text); len(runes) > 2*width {
		return string(runes[:2*width]) + "…"
	}
	return text
}

// where is a place as people read it: of a new item the list.
func where(p inject.Place) string {
	if path.Base(p.Path) == "-" {
		return path.Dir(p.Path)
	}
	return p.Path
}

func (p *page) final(r *Report) {
	style, verdict := green, "The final pod is let through."
	switch r.Final.Verdict {
	case "denied":
		style, verdict = red, "The final pod is refused:"
	case "warned":
		style, verdict = yellow, "The final pod is let through with a warning:"
	}
	p.WriteString("\n")
	p.line(style, verdict)
	for i := range r.Final.Findings {
		p.row("  ", 2, "", r.Final.Findings[i].String())
	}
}
