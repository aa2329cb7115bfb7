// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Page collects lines of at most Width runes.
type Page struct {
	strings.Builder

	Width  int
	Colour bool
}

// PrintLine prints a string that begins at a column, in as many lines as necessary.
func (p *Page) PrintLine(column int, style, text string) { p.PrintRow("", column, style, text) }

// PrintRow prints a head and a string that begins at a column. Continuation lines are aligned with the string.
func (p *Page) PrintRow(head string, column int, style, text string) {
	for i, part := range Wrap(text, p.Width-column) {
		if i > 0 {
			head = ""
		}
		p.WriteString(strings.TrimRight(fmt.Sprintf("%-*s%s", column, head, p.Paint(style, part)), " ") + "\n")
	}
}

// Paint returns a string in a style, if the page has colors.
func (p *Page) Paint(style, text string) string { return Text(p.Colour, style, text) }

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
