// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// textWidth is the width of text that does not go to a terminal, in runes.
	textWidth = 100
	// minWidth is the narrowest that text gets.
	minWidth = 40
)

// widthOf is how wide text is: as $COLUMNS says, as the terminal is, or textWidth.
func widthOf(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return max(n, minWidth)
	}
	if file, ok := own(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return max(n, minWidth)
		}
	}
	return textWidth
}

// fold breaks the lines of text that are too wide for w. What is broken off is
// indented, so that each line that is not begins with what it is about: file:line.
func fold(w io.Writer, text string) string {
	lines, width := strings.Split(text, "\n"), widthOf(w)
	for i, line := range lines {
		lines[i] = foldLine(line, 4, width)
	}
	return strings.Join(lines, "\n")
}

// foldLine breaks a line between words, and indents what is broken off. No word is
// broken: it may be a path that a user wants to copy.
func foldLine(line string, indent, width int) string {
	var folded strings.Builder
	column := 0
	for k, word := range strings.Split(line, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case k == 0:
		case column+1+n > width:
			folded.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			folded.WriteByte(' ')
			column++
		}
		folded.WriteString(word)
		column += n
	}
	return folded.String()
}
