// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/templates/problem"
)

// page collects lines of at most width runes.
type page struct {
	strings.Builder
	width           int
	colour, verbose bool
}

// printLine prints a string, in as many lines as necessary.
func (p *page) printLine(style, text string) { p.printRow("", 0, style, text) }

// printRow prints a string after a head. Continuation lines are aligned with the string.
func (p *page) printRow(head string, column int, style, text string) {
	for i, part := range Wrap(text, p.width-column) {
		if i > 0 {
			head = strings.Repeat(" ", column)
		}
		p.WriteString(strings.TrimRight(head+terminal.Text(p.colour, style, part), " ") + "\n")
	}
}

func (p *page) printPair(name, style, text string) {
	p.printRow(fmt.Sprintf("  %-*s", column-2, name), column, style, text)
}

// column is the position of the second column.
const column = 16

// Wrap breaks a string into lines of at most room runes. It removes line breaks and escapes
// hidden characters ([inject.Visible]). It only breaks between words: a longer word gets its
// own line, because users may want to copy it. Text between backticks is a command, and one word.
func Wrap(text string, room int) []string {
	words := wordsOf(inject.Visible(problem.OneLine(text)))
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

// wordsOf splits a string at spaces that are not between backticks.
func wordsOf(text string) (words []string) {
	inside, word := false, strings.Builder{}
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	if strings.Count(text, "`")%2 == 1 {
		return strings.Fields(text)
	}
	for _, r := range text {
		if r == '`' {
			inside = !inside
		}
		if unicode.IsSpace(r) && !inside {
			end()
			continue
		}
		word.WriteRune(r)
	}
	end()
	return words
}

// joinNames joins as many names as fit into room (in runes), and appends how many more there are.
func joinNames(names []string, room int) string {
	text := names[0]
	for i, name := range names[1:] {
		next := text + ", " + name
		if rest := len(names) - 1 - i; utf8.RuneCountInString(next) > room && rest > 1 {
			return fmt.Sprintf("%s and %d more", text, rest)
		}
		text = next
	}
	return text
}

// Plural returns a count with its noun, for example "2 pods".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxShown limits how much of a value is shown, in bytes.
const maxShown = 200
