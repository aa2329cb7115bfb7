// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
)

// WantsColour reports whether to write colours: to a terminal, unless its user has turned them off (https://no-color.org).
func WantsColour(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// Screen is what all output goes through. Names, annotations and messages come from
// anybody, and a terminal obeys the control characters in them: a screen shows these
// as escapes, which within the strings of JSON mean the same characters. A carriage
// return at the end of a line is left out.
type Screen struct {
	w  io.Writer
	mu sync.Mutex
	// rest is the beginning of a character, or a carriage return, whose next byte has not come.
	rest []byte
}

// NewScreen returns a screen in front of w.
func NewScreen(w io.Writer) *Screen { return &Screen{w: w} }

// Write implements [io.Writer].
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := append(s.rest, p...)
	s.rest = bytes.Clone(text[complete(text):])
	text = bytes.ReplaceAll(text[:len(text)-len(s.rest)], []byte("\r\n"), []byte("\n"))
	if _, err := io.WriteString(s.w, inject.Visible(string(text))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// complete is the length of text without the beginning of a character at its end.
func complete(text []byte) int {
	n := len(text)
	if n > 0 && text[n-1] == '\r' {
		return n - 1
	}
	for i := n - 1; i >= 0 && i >= n-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return n
}

// End writes what is left over.
func (s *Screen) End() {
	_, _ = io.WriteString(s.w, inject.Visible(string(s.rest))) // there is nobody left to tell
	s.rest = nil
}

// isTerminal reports whether somebody sees what is written.
func (s *Screen) isTerminal() bool {
	file, ok := s.w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Raw returns the writer behind a screen, for what controls the terminal on purpose: colours, a cleared screen.
// Strings from elsewhere must go through [inject.Visible] first.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*Screen); ok {
		return s.w
	}
	return w
}

// ForDocument is for a document that keeps every byte of what its author wrote. On a terminal
// it is for reading, and shown as everything else.
func ForDocument(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return w
	}
	return Raw(w)
}

// IsTerminal reports whether w is a screen in front of a terminal.
func IsTerminal(w io.Writer) bool {
	s, ok := w.(*Screen)
	return ok && s.isTerminal()
}
