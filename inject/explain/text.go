// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// The colours of a terminal (ECMA-48, SGR).
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	reset  = "\x1b[0m"
)

// Detail is how much of a report its text has.
type Detail int

// The details. Brief has the templates that do not apply, and that the pod does not
// request, on one line; All has all templates; Verbose the rules that did not apply,
// too, and all webhooks.
const (
	Brief Detail = iota
	All
	Verbose
)

// Text is the report for people, in lines of that width: first what becomes of the pod and
// what is wrong, then why, template by template.
func (r *Report) Text(width int, colour bool, detail Detail) string {
	p := &page{width: width, colour: colour, verbose: detail == Verbose}
	p.line(bold, r.title())
	if len(r.Same) > 0 {
		p.line("", fmt.Sprintf("The same holds for %d more: %s", len(r.Same), r.also()))
	}
	p.line("", strings.TrimSpace(r.Summary+" "+r.OptedIn))
	p.findings(r)
	for _, m := range r.Misplaced {
		p.row("  ", 2, yellow, m)
	}
	for _, m := range r.Misfits {
		p.row("  ", 2, red, m)
	}
	p.running(r.Running)
	p.webhooks(r)
	for _, name := range slices.Sorted(maps.Keys(r.Gone)) {
		p.line(yellow, fmt.Sprintf("The pod says that %s was injected, by revision %s of it. There is no such template here; "+
			"if other templates were used, name those.", name, r.Gone[name]))
	}
	var others []*Template
	for i := range r.Templates {
		if t := &r.Templates[i]; detail == Brief && r.other(t) {
			others = append(others, t)
		} else {
			p.template(r, t)
		}
	}
	p.others(others, len(others) < len(r.Templates))
	for i, note := range r.Notes {
		if i == 0 {
			p.WriteString("\n")
		}
		p.row("Note: ", 6, "", note)
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
	width           int
	colour, verbose bool
}

// line writes text over as many lines as it needs.
func (p *page) line(style, text string) { p.row("", 0, style, text) }

// row writes text behind a head, and further lines under the text.
func (p *page) row(head string, column int, style, text string) {
	for i, part := range Wrap(text, p.width-column) {
		if i > 0 {
			head = strings.Repeat(" ", column)
		}
		if p.colour && style != "" {
			part = style + part + reset
		}
		p.WriteString(strings.TrimRight(head+part, " ") + "\n")
	}
}

// Wrap breaks text into lines of at most room runes, without hidden characters
// ([inject.Visible]). It breaks between words only: a longer word has a line of its own, for
// it may be something to copy.
func Wrap(text string, room int) []string {
	words := strings.Fields(inject.Visible(text))
	lines, column := []string{""}, 0
	for _, word := range words {
		n := utf8.RuneCountInString(word)
		last := len(lines) - 1
		switch {
		case column == 0:
			lines[last] = word
		case column+1+n > room:
			lines, column = append(lines, word), 0
		default:
			lines[last] += " " + word
			column++
		}
		column += n
	}
	return lines
}

// findings are what is wrong with the pod, those that refuse it first.
func (p *page) findings(r *Report) {
	all := r.Final.Findings
	if len(all) == 0 {
		all = r.Mistakes
	}
	for i := range all {
		style := yellow
		if all[i].Mode == templates.Deny {
			style = red
		}
		head := ""
		if all[i].Template != "" {
			head = all[i].Template + ": "
		}
		p.row("  ", 2, style, head+string(all[i].Code)+at(all[i].Path, all[i].Message)+": "+all[i].Message)
	}
}

// webhooks says why the API server calls none, or verbosely of each whether it does.
func (p *page) webhooks(r *Report) {
	if r.Called == nil {
		return
	}
	if len(r.Webhooks) == 0 {
		p.line(red, "No webhook configuration of Pillion's is installed.")
	}
	for _, w := range r.Webhooks {
		if !p.verbose && (*r.Called || w.Type == Validating || w.Type == Shadow && !w.Called) {
			continue
		}
		style, word := dim, "is not called: "
		if w.Called {
			style, word = "", "is called: "
		}
		p.row(fmt.Sprintf("  %-11s", w.Type), 13, style, w.Name+" "+word+w.Reason)
	}
}

// column is where the second column of a template's part begins.
const column = 16

func (p *page) template(r *Report, t *Template) {
	outcome := r.Outcome(t)
	style := yellow
	switch {
	case t.State == Missing, t.State == Altered, t.Code == inject.CodeNotInjected, Failed(t.Code):
		style = red
	case t.State == Current, !r.Object.Live && (t.Code == inject.CodeInjected || t.Code == inject.CodePresent):
		style = green
	}
	p.WriteString("\n")
	p.line(bold+style, t.Template+": "+outcome)
	code := ""
	if t.Code != "" {
		code = fmt.Sprintf(" (%s)", t.Code)
	}
	p.pair("because", "", t.Message+code)
	p.pair("revision", "", t.Revision)
	if t.InjectedBy != "" && t.InjectedBy != t.Revision {
		p.pair("injected by", "", "revision "+t.InjectedBy)
	}
	p.places(r, t)
	name := "parameters"
	for _, v := range t.Params {
		p.pair(name, "", fmt.Sprintf("%s = %s (%s)", v.Name, orEmpty(v.Text), origin(v.Source)))
		name = ""
	}
	if !p.verbose {
		return
	}
	name = "passed rules"
	for _, s := range t.Passed {
		p.pair(name, dim, fmt.Sprintf("%s: %s", s.Code, s.Message))
		name = ""
	}
}

func orEmpty(text string) string {
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
	switch {
	case r.Object.Live || t.Code == inject.CodeNotInjected:
		name = "lacks"
	case t.Code == inject.CodeNotOptedIn:
		name = "would add"
	}
	for _, place := range t.Added {
		p.pair(name, "", fmt.Sprintf("%s: %s", inject.Where(place.Path), inject.Brief(string(place.Template))))
		name = ""
	}
	for _, place := range t.Kept {
		p.pair("keeps", "", fmt.Sprintf("%s: %s, not %s", inject.Where(place.Path), its(place.Pod), clip(place.Template)))
	}
	for _, o := range t.Obstacles {
		p.pair("in the way", "", inject.Where(o.Path))
	}
	for _, note := range t.Notes {
		p.pair("note", "", note)
	}
}

// its is what the pod has in a place.
func its(value []byte) string {
	if string(value) == "null" {
		return "the pod has none"
	}
	return "the pod's " + clip(value)
}

// maxShown is how much is shown of a value, in runes.
const maxShown = 200

// clip shows the beginning of a long value.
func clip(value []byte) string {
	if runes := []rune(string(value)); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return string(value)
}

func at(pointer, sentence string) string {
	if pointer == "" || inject.Named(pointer, sentence) {
		return ""
	}
	return " at " + inject.Where(pointer)
}
