// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common"
)

// FormatLocation returns a place in an expression for a message. Of an expression with several lines, it contains one line.
func FormatLocation(source string, at common.Location) string {
	line, column, known := lineAt(source, at)
	if !known {
		return fmt.Sprintf("in %q", source)
	}
	return fmt.Sprintf("in %q, column %d", line, column+1)
}

// lineAt returns the line of a place and the place's index in its characters. Known is false if there is no such place:
// for some syntax errors, CEL has none.
func lineAt(source string, at common.Location) (line string, column int, known bool) {
	lines := strings.Split(source, "\n")
	if at.Line() < 1 || at.Line() > len(lines) || at.Column() < 0 {
		return "", 0, false
	}
	return lines[at.Line()-1], at.Column(), true
}
