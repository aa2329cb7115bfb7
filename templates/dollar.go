// SPDX-License-Identifier: Apache-2.0

package templates

import "strings"

// withoutDollar returns the first expression in ${...}.
func withoutDollar(source string) string {
	_, rest, _ := strings.Cut(source, "${")
	if inside, _, ok := cutExpression(rest); ok && strings.TrimSpace(inside) != "" {
		return strings.TrimSpace(inside)
	}
	return "the expression"
}

// cutExpression finds the } that closes an expression. It ignores those in CEL strings and map
// literals.
func cutExpression(text string) (source, rest string, ok bool) {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case quote != 0 && b == '\\':
			i++
		case quote != 0:
			if b == quote {
				quote = 0
			}
		case b == '\'' || b == '"':
			quote = b
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
