// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// lexer finds where the parts of a JSON text end (RFC 8259); -1 is for what is
// no such part.
type lexer struct{ text string }

// at is the byte at i, or 0, which no part has, where the text is at its end.
func (l *lexer) at(i int) byte {
	if i < len(l.text) {
		return l.text[i]
	}
	return 0
}

func (l *lexer) blank(i int) int {
	if i < len(l.text) && l.text[i] > ' ' { // as nearly always, and this much is inlined
		return i
	}
	return l.skipBlank(i)
}

func (l *lexer) skipBlank(i int) int {
	for i < len(l.text) && (l.text[i] == ' ' || l.text[i] == '\n' || l.text[i] == '\t' || l.text[i] == '\r') {
		i++
	}
	return i
}

func (l *lexer) word(i int, word string) int {
	if strings.HasPrefix(l.text[i:], word) {
		return i + len(word)
	}
	return -1
}

// number: "-" ("0" or digits) and maybe "." digits and maybe "e" sign digits.
func (l *lexer) number(i int) int {
	if l.at(i) == '-' {
		i++
	}
	begin := i
	if i = l.digits(i); i > begin+1 && l.text[begin] == '0' {
		return -1
	}
	if i > 0 && l.at(i) == '.' {
		i = l.digits(i + 1)
	}
	if i > 0 && l.at(i)|0x20 == 'e' {
		if i++; l.at(i) == '+' || l.at(i) == '-' {
			i++
		}
		i = l.digits(i)
	}
	return i
}

// digits are one at least.
func (l *lexer) digits(i int) int {
	begin := i
	for l.at(i)-'0' <= 9 {
		i++
	}
	if i == begin {
		return -1
	}
	return i
}

// quoted is a string with its quotes, in UTF-8 and without half of a surrogate
// pair, and whether there are escapes in it.
func (l *lexer) quoted(i int) (end int, escaped bool) {
	text := l.text
	if i >= len(text) || text[i] != '"' {
		return -1, false
	}
	for i++; ; {
		// Letters of one byte that are neither a quote nor an escape are looked at eight at a time.
		for ; i+8 <= len(text); i += 8 {
			if special := specialIn(text[i : i+8]); special != 0 {
				i += bits.TrailingZeros64(special) >> 3
				break
			}
		}
		switch c := l.at(i); {
		case c == '"':
			return i + 1, escaped
		case c == '\\':
			i, escaped = l.escape(i+1), true
			if i < 0 {
				return -1, false
			}
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				return -1, false
			}
			i += size
		case c < ' ': // a control character, or the text's end
			return -1, false
		default: // the text's last letters
			i++
		}
	}
}

// specialIn has the high bit of the first of eight bytes set that is a quote, a backslash, a control character or no
// letter of one byte; those of later ones mean nothing.
func specialIn(b string) uint64 {
	const each = 0x01_01_01_01_01_01_01_01
	const high = 0x80 * each
	x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
	// To take away from a byte what is more than it sets its high bit. That
	// borrows from the next one, so only the lowest that is set counts.
	return (x | (x - ' '*each) | (x ^ '"'*each - each) | (x ^ '\\'*each - each)) & high
}

// isPlain reports whether a text needs no escape in JSON.
func isPlain(s string) bool {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if specialIn(s[i:i+8]) != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escape is the end of what stands after a backslash.
func (l *lexer) escape(i int) int {
	switch l.at(i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		unit := l.unit(i + 1)
		switch {
		case unit < 0 || unit >= 0xDC00 && unit < 0xE000:
			return -1
		case unit < 0xD800 || unit >= 0xE000:
			return i + 5
		}
		if low := l.unit(i + 7); l.at(i+5) == '\\' && l.at(i+6) == 'u' && low >= 0xDC00 && low < 0xE000 {
			return i + 11
		}
	}
	return -1
}

// unit is the UTF-16 code unit that four hexadecimal digits stand for, or -1.
func (l *lexer) unit(i int) int {
	if i+4 > len(l.text) {
		return -1
	}
	unit, err := strconv.ParseUint(l.text[i:i+4], 16, 16) // which takes no sign, and _ only with base 0
	if err != nil {
		return -1
	}
	return int(unit)
}

// unquote gives the text between the quotes of a checked string.
func unquote(quoted string) string {
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		panic("tree: a checked string does not unquote: " + err.Error())
	}
	return string(text)
}
