// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// page is what explain prints.
type page struct {
	terminal.Page

	verbose bool
}

// printLine prints a string, in as many lines as necessary.
func (p *page) printLine(style, text string) { p.PrintLine(0, style, text) }

func (p *page) printPair(name, style, text string) {
	p.PrintRow("  "+name, column, style, text)
}

// column is the position of the second column.
const column = 16

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
