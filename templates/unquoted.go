// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"regexp"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// notYAML returns the line of an error in a YAML stream, and a message.
func notYAML(data []byte, err error) (line int, message string) {
	line, message = jsontree.WhereYAML(data, err)
	lines := strings.Split(string(data), "\n")
	if 0 < line && line <= len(lines) && hasUnquoted(lines[line-1]) {
		message, _, _ = strings.Cut(message, "; ") // this hint is better
		message += `; put the expression in quotes, as in "${params.NAME}"`
	}
	return line, "not YAML: " + message
}

var inExpression = regexp.MustCompile(`\$\{|[\w)\]][(\[]['"]`)

// hasUnquoted reports whether a line of YAML has an expression outside quotes.
func hasUnquoted(line string) bool {
	var plain strings.Builder
	quote, before, last := byte(0), byte(0), byte(':') // the last two characters that are not blanks
	for i := range len(line) {
		b := line[i]
		begins := strings.IndexByte("{,:-", last) >= 0 || last == '[' && strings.IndexByte("{[,: -", before) >= 0
		switch {
		case quote != 0:
			if b == quote {
				quote = 0
			}
		case (b == '\'' || b == '"') && begins:
			quote = b
		default:
			plain.WriteByte(b)
		}
		if b != ' ' {
			before, last = last, b
		}
	}
	return inExpression.MatchString(plain.String())
}
