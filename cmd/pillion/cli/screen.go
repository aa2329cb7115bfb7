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

// WantsColour reports whether to write colours: only to a terminal, and only if its user has
// not turned them off (https://no-color.org).
func WantsColour(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// Screen is the writer for all output. Names, annotations and messages may contain control
// characters, which a terminal would obey. A screen writes these as escapes. In JSON strings,
// the escapes mean the same characters. It drops a carriage return at the end of a line.
type Screen struct {
	w  io.Writer
	mu sync.Mutex
	// rest is an incomplete character, or a carriage return that may end a line.
	rest []byte
}

// NewScreen returns a screen in front of w.
func NewScreen(w io.Writer) *Screen { return &Screen{w: w} }

// Write implements [io.Writer].
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := append(s.rest, p...)
	s.rest = bytes.Clone(text[completeLength(text):])
	text = bytes.ReplaceAll(text[:len(text)-len(s.rest)], []byte("\r\n"), []byte("\n"))
	if _, err := io.WriteString(s.w, inject.Visible(string(text))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// completeLength returns the length of the bytes without an incomplete character at the end.
func completeLength(text []byte) int {
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

// End writes the incomplete rest.
func (s *Screen) End() {
	_, _ = io.WriteString(s.w, inject.Visible(string(s.rest))) // an error cannot be reported any more
	s.rest = nil
}

// isTerminal reports whether the output goes to a terminal.
func (s *Screen) isTerminal() bool { return isTerminal(s.w) }

// IsTerminalInput reports whether input comes from a terminal.
func IsTerminalInput(r io.Reader) bool { return isTerminal(r) }

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Raw returns the writer behind a screen, to control the terminal on purpose: for colours, or
// to clear the screen. Strings from elsewhere must go through [inject.Visible] first.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*Screen); ok {
		return s.w
	}
	return w
}

// ForDocument returns a writer that keeps every byte of a document. On a terminal, the
// document is only for reading, so it is escaped like all output.
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
