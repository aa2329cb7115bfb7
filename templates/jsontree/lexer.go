// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// lexer finds the ends of JSON tokens (RFC 8259). Its methods return -1 if there is no such
// token.
type lexer struct{ text string }

// byteAt returns the byte at i, or 0 at the end. No token contains 0.
func (l *lexer) byteAt(i int) byte {
	if i < len(l.text) {
		return l.text[i]
	}
	return 0
}

func (l *lexer) blankEnd(i int) int {
	if i < len(l.text) && l.text[i] > ' ' { // the most frequent case, which is inlined
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

func (l *lexer) wordEnd(i int, word string) int {
	if strings.HasPrefix(l.text[i:], word) {
		return i + len(word)
	}
	return -1
}

// numberEnd returns the index after the number at i: "-", then "0" or digits, then perhaps "." and digits, then perhaps "e", a sign and
// digits. It returns -1 if there is no number.
func (l *lexer) numberEnd(i int) int {
	if l.byteAt(i) == '-' {
		i++
	}
	begin := i
	if i = l.digitsEnd(i); i > begin+1 && l.text[begin] == '0' {
		return -1
	}
	if i > 0 && l.byteAt(i) == '.' {
		i = l.digitsEnd(i + 1)
	}
	if i > 0 && l.byteAt(i)|0x20 == 'e' {
		if i++; l.byteAt(i) == '+' || l.byteAt(i) == '-' {
			i++
		}
		i = l.digitsEnd(i)
	}
	return i
}

// digitsEnd accepts one or more digits.
func (l *lexer) digitsEnd(i int) int {
	begin := i
	for l.byteAt(i)-'0' <= 9 {
		i++
	}
	if i == begin {
		return -1
	}
	return i
}

// quotedEnd accepts a string with its quotes, in valid UTF-8 and without half of a surrogate
// pair. It also reports whether the string contains escapes.
func (l *lexer) quotedEnd(i int) (end int, escaped bool) {
	text := l.text
	if i >= len(text) || text[i] != '"' {
		return -1, false
	}
	for i++; ; {
		// This loop skips ASCII characters that need no special handling, eight at a time.
		for ; i+8 <= len(text); i += 8 {
			if special := specialIn(text[i : i+8]); special != 0 {
				i += bits.TrailingZeros64(special) >> 3
				break
			}
		}
		switch c := l.byteAt(i); {
		case c == '"':
			return i + 1, escaped
		case c == '\\':
			i, escaped = l.escapeEnd(i+1), true
			if i < 0 {
				return -1, false
			}
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				return -1, false
			}
			i += size
		case c < ' ': // a control character, or the end
			return -1, false
		default: // the last bytes
			i++
		}
	}
}

// specialIn returns a word whose lowest set high bit is at the first byte that is a quote, a
// backslash, a control character or not ASCII. Higher bits have no meaning.
func specialIn(b string) uint64 {
	const each = 0x01_01_01_01_01_01_01_01
	const high = 0x80 * each
	x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
	// Subtracting a larger value from a byte sets its high bit. It also borrows from the next
	// byte, so only the lowest set bit is exact.
	return (x | (x - ' '*each) | (x ^ '"'*each - each) | (x ^ '\\'*each - each)) & high
}

// isPlain reports whether a string needs no escapes in JSON.
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

// escapeEnd returns the end of an escape sequence, from the character after the backslash.
func (l *lexer) escapeEnd(i int) int {
	switch l.byteAt(i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		unit := l.codeUnit(i + 1)
		switch {
		case unit < 0 || unit >= 0xDC00 && unit < 0xE000:
			return -1
		case unit < 0xD800 || unit >= 0xE000:
			return i + 5
		}
		if low := l.codeUnit(i + 7); l.byteAt(i+5) == '\\' && l.byteAt(i+6) == 'u' && low >= 0xDC00 && low < 0xE000 {
			return i + 11
		}
	}
	return -1
}

// codeUnit returns the UTF-16 code unit of four hexadecimal digits, or -1.
func (l *lexer) codeUnit(i int) int {
	if i+4 > len(l.text) {
		return -1
	}
	unit, err := strconv.ParseUint(l.text[i:i+4], 16, 16) // accepts no sign, and _ only with base 0
	if err != nil {
		return -1
	}
	return int(unit)
}

// unquoteString returns the string between the quotes, which must be valid.
func unquoteString(quoted string) string {
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		panic("tree: a checked string does not unquote: " + err.Error())
	}
	return string(text)
}
