// SPDX-License-Identifier: Apache-2.0

package diagnostics

import "strings"

// FirstExpression returns the first expression in ${...}, or "the expression" if there is none.
func FirstExpression(source string) string {
	_, rest, _ := strings.Cut(source, "${")
	if inside, _, ok := CutExpression(rest); ok && strings.TrimSpace(inside) != "" {
		return strings.TrimSpace(inside)
	}
	return "the expression"
}

// CutExpression splits a string after ${ at the } that closes the expression. It ignores those in CEL's strings, comments and map
// literals. It returns false if there is none.
func CutExpression(text string) (source, rest string, ok bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '\'' || b == '"':
			isRaw := i > 0 && (text[i-1] == 'r' || text[i-1] == 'R')
			i += quotedLength(text[i:], isRaw) - 1
		case strings.HasPrefix(text[i:], "//"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				return "", "", false
			}
			i += end
		case b == '{':
			depth++
		case b == '}' && depth == 0:
			return text[:i], text[i+1:], true
		case b == '}':
			depth--
		}
	}
	return "", "", false
}

// quotedLength returns the length of the CEL string at the beginning of other text, with its quotes. In a
// raw string, a backslash is an ordinary character.
func quotedLength(text string, isRaw bool) int {
	quote := text[:1]
	if three := strings.Repeat(quote, 3); strings.HasPrefix(text, three) {
		quote = three
	}
	for i := len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && !isRaw:
			i++
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		}
	}
	return len(text)
}
