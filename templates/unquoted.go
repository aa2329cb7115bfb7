// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// notYAML returns the line of an error in a YAML stream, and a message.
func notYAML(data []byte, err error) (line int, message string) {
	line, message = jsontree.WhereYAML(data, err)
	lines := strings.Split(string(data), "\n")
	if 0 < line && line <= len(lines) {
		if hint := cmp.Or(innerQuotesHint(lines[line-1]), quotesHint(cutQuoted(lines[line-1]))); hint != "" {
			message, _, _ = strings.Cut(message, "; ") // this hint is better
			message += hint
		}
	}
	return line, "not YAML: " + message
}

var (
	inExpression = regexp.MustCompile(`[\w)\]][(\[]['"]|\.\?\w|\[\?`)
	innerQuotes  = regexp.MustCompile(`"[^"]*\$\{[^}"]*"\w`)
	besideText   = regexp.MustCompile(`[^\s{\[,$]\$\{`)
)

// quotesHint returns which quotes are missing in a line of YAML, or "", given its part outside quotes.
func quotesHint(plain string) string {
	switch {
	case besideText.MatchString(plain):
		return `; put the whole value in quotes, as in "--name=${params.NAME}"`
	case strings.Contains(plain, "${"):
		return `; put the expression in quotes, as in "${params.NAME}"`
	case inExpression.MatchString(plain):
		return `; put the whole expression in quotes, as in "params.NAME == 'a'"`
	}
	return ""
}

// innerQuotesHint returns a hint if an expression in double quotes has a string in double quotes, or "".
func innerQuotesHint(line string) string {
	if !innerQuotes.MatchString(line) {
		return ""
	}
	return `; in double quotes, the strings of an expression need single quotes, as in "${params.NAME == 'a'}"`
}

// cutQuoted returns a line of YAML without its values and keys in quotes.
func cutQuoted(line string) string {
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
	return plain.String()
}
