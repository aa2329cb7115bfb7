// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// TextWidth is the width of output to a terminal whose own is unknown, in runes.
	TextWidth = 100
	// Unwrapped is the width of output that does not go to a terminal.
	Unwrapped = math.MaxInt32
	// MinWidth is the smallest width of output.
	MinWidth = 40
)

// WidthOf returns the width of output to w: $COLUMNS, or the terminal's width. Without both it is [Unwrapped], so that grep and
// other programs get whole lines.
func WidthOf(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return max(n, MinWidth)
	}
	file, ok := Raw(w).(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Unwrapped
	}
	if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
		return max(n, MinWidth)
	}
	return TextWidth
}

// Fold breaks the lines that are too wide for w. It indents the continuation lines, so that
// every line without indentation begins with its subject: file:line.
func Fold(w io.Writer, text string) string {
	lines, width := strings.Split(text, "\n"), WidthOf(w)
	for i, line := range lines {
		lines[i] = FoldLine(line, 4, width)
	}
	return strings.Join(lines, "\n")
}

// FoldLine breaks a line between words, and indents the continuation lines. It never breaks a
// word, because users may want to copy it, for example a path.
func FoldLine(line string, indent, width int) string {
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
