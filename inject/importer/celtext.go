// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strconv"
	"strings"
)

// celString returns a string as a CEL literal.
func celString(text string) string {
	if !strings.ContainsAny(text, "'\\") && strconv.Quote(text) == `"`+text+`"` {
		return "'" + text + "'"
	}
	return strconv.Quote(text)
}

// celList returns strings as a CEL list.
func celList(texts ...string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = celString(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// wholeText returns the text of a template for a CEL expression.
func wholeText(expression string) string { return "${" + expression + "}" }

// escapeText returns the text of a template that means the given one.
func escapeText(text string) string { return strings.ReplaceAll(text, "${", "$${") }

// inParentheses puts an expression with || or ?: in parentheses if it is one of several.
func inParentheses(expression string, several bool) string {
	if several && (strings.Contains(expression, "||") || strings.Contains(expression, " ? ")) {
		return "(" + expression + ")"
	}
	return expression
}

// areOpposite reports whether one of two conditions is the other one with a ! before it.
func areOpposite(a, b string) bool { return a == "!("+b+")" || b == "!("+a+")" }
