// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden reports whether a terminal or a reader could be misled by a character
// instead of showing it: control characters, those that change the direction of
// text, and the separators of lines and paragraphs. A newline and a tab are not.
func Hidden(r rune) bool {
	switch {
	case ' ' <= r && r <= '~', r == '\n', r == '\t':
		return false
	case r == '\u2028', r == '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// Visible shows the hidden characters of text as \u001b, and bytes that are not
// UTF-8 as \x9b.
func Visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, Hidden) < 0 {
		return text
	}
	return string(AppendVisible(nil, text))
}

// AppendVisible appends what [Visible] returns.
func AppendVisible(b []byte, text string) []byte {
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
	return b
}

// Cut shortens text to at most limit bytes and an ellipsis.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
