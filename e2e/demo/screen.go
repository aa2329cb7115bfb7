// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// width fits on a slide and on half of a screen.
const width = 100

const (
	plain  = ""
	bold   = "\033[1m"
	dim    = "\033[2m"
	red    = "\033[31m"
	green  = "\033[32m"
	yellow = "\033[33m"
	cyan   = "\033[36m"
	reset  = "\033[0m"
)

// screen prints, in color if the output is a terminal.
type screen struct {
	out   *os.File
	color bool
}

func newScreen(out *os.File) *screen {
	return &screen{out: out, color: term.IsTerminal(int(out.Fd())) && os.Getenv("NO_COLOR") == ""}
}

func (s *screen) paint(color, text string) string {
	if !s.color || color == plain {
		return text
	}
	return color + text + reset
}

func (s *screen) line(color, format string, args ...any) {
	fmt.Fprintln(s.out, s.paint(color, programs.Clip(fmt.Sprintf(format, args...), width)))
}

func (s *screen) heading(text string) {
	fmt.Fprintf(s.out, "\n%s\n\n", s.paint(bold, text))
}

// wrap breaks a string into lines of at most this many characters.
func wrap(text string, to int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > to {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
