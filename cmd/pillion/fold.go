// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"unicode/utf8"
)

// textWidth is that of the lines that people read, in runes.
const textWidth = 100

// fold breaks wide lines between words, on a terminal or not. What is broken off is
// indented, so that each line that is not begins with what it is about: file:line.
// No word is broken: it may be a path that somebody wants to copy.
func fold(text string) string {
	const indent = "    "
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		var folded strings.Builder
		column := 0
		for k, word := range strings.Split(line, " ") {
			n := utf8.RuneCountInString(word)
			switch {
			case k == 0:
			case column+1+n > textWidth:
				folded.WriteString("\n" + indent)
				column = len(indent)
			default:
				folded.WriteByte(' ')
				column++
			}
			folded.WriteString(word)
			column += n
		}
		lines[i] = folded.String()
	}
	return strings.Join(lines, "\n")
}
