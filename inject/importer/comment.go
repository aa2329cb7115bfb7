// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/pillion-dev/pillion/templates/problem"
)

// commentWidth is the width of comments, without their indentation.
const commentWidth = 90

// commentLines returns paragraphs as lines with a prefix. Further lines of a paragraph are indented more than its first one.
func commentLines(paragraphs []string, prefix string) string {
	var out strings.Builder
	for _, p := range paragraphs {
		text := strings.TrimLeft(p, " ")
		indent := p[:len(p)-len(text)]
		line := indent
		for i, word := range strings.Split(text, " ") {
			switch {
			case i > 0 && len(line)+1+len(word) > commentWidth:
				out.WriteString(prefix + line + "\n")
				line = indent + "  " + word
			case i > 0:
				line += " " + word
			default:
				line += word
			}
		}
		out.WriteString(strings.TrimRight(prefix+line, " ") + "\n")
	}
	return out.String()
}

// escapeUnprintable returns a string without characters that cannot be in a comment.
func escapeUnprintable(text string) string {
	var out strings.Builder
	for _, r := range problem.OneLine(text) {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			out.WriteRune(r)
			continue
		}
		fmt.Fprintf(&out, "\\u%04x", r)
	}
	return out.String()
}
