// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a template file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // from 1; 0 where the whole file is meant
	Path    string `json:"path,omitempty"` // as spec.params[0].type
	Message string `json:"message"`
}

// String is file:line: path: message.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	b.WriteString(": " + p.Message)
	return OneLine(b.String())
}

// OneLine shows the line breaks in text as escapes. What others wrote must not begin a
// line: that could look like something that a command says.
func OneLine(text string) string {
	return strings.NewReplacer("\r\n", `\r\n`, "\n", `\n`, "\r", `\r`).Replace(text)
}

// Problems is the error of a set of templates that cannot be used.
type Problems []Problem

// Error lists the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// err is nil for no problems, which a nil Problems in an error is not.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// maxTyped is how long a name is that somebody may have misspelled, in bytes. To
// compare longer ones would cost the square of their length.
const maxTyped = 100

// Closest is the candidate nearest to name, or "" when none is near enough to
// be what was meant: a third of its letters may differ.
func Closest(name string, candidates []string) string {
	best, bestDistance := "", len(name)/3+2
	if len(name) > maxTyped {
		return ""
	}
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, replace or swap with their
// neighbour that make a into b.
func distance(a, b string) int {
	if len(a) > maxTyped || len(b) > maxTyped {
		return max(len(a), len(b))
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				same++
			}
			rows[i][j] = min(same, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// didYouMean is the end of a message about an unknown name.
func didYouMean(name string, candidates []string) string {
	if c := Closest(name, candidates); c != "" {
		return fmt.Sprintf("; did you mean %q?", c)
	}
	return ""
}

// brief leaves out the regular expression that Kubernetes' messages end with.
func brief(message string) string {
	message, _, _ = strings.Cut(message, " (e.g.")
	return message
}

func join(path, key string) string {
	switch {
	case path == "":
		return key
	case strings.ContainsAny(key, "./[]"):
		return fmt.Sprintf("%s[%q]", path, key)
	}
	return path + "." + key
}
