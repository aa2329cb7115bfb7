// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/templates/problem"
)

// Hidden reports whether a character could mislead a terminal or a reader: control characters,
// characters that change the text direction, and line and paragraph separators. Newline and tab are
// not hidden.
func Hidden(r rune) bool {
	switch {
	case ' ' <= r && r <= '~', r == '\n', r == '\t':
		return false
	case r == '\u2028', r == '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// Visible returns the string with hidden characters as \u001b, and bytes that are not UTF-8 as
// \x9b.
func Visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, Hidden) < 0 {
		return text
	}
	var b []byte
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			b = fmt.Appendf(b, `\x%02x`, text[i])
		case Hidden(r):
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// maxMessage is the maximum length of the message of a decision or a finding, in bytes.
const maxMessage = 4096

// cleanMessage returns a message on one line, without hidden characters. A message may quote the pod.
func cleanMessage(text string) string {
	if strings.ContainsAny(text, "\r\n") {
		text = problem.OneLine(problem.Cut(text, maxMessage))
	}
	return problem.Cut(Visible(problem.Cut(text, maxMessage)), maxMessage)
}

// cleanMessages cleans the messages that may quote the pod.
func (d *Decision) cleanMessages() {
	switch d.Code {
	case CodeInvalidParameter, CodeRenderFailed, CodeConflict, CodeFellBack:
		d.Message = cleanMessage(d.Message)
	}
	for i := range d.Obstacles {
		d.Obstacles[i].Message = cleanMessage(d.Obstacles[i].Message)
	}
	for i := range d.Notes {
		d.Notes[i] = cleanMessage(d.Notes[i])
	}
}
