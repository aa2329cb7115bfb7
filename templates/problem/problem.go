// SPDX-License-Identifier: Apache-2.0

// Package problem describes what is wrong with template files, and finds typing errors.
package problem

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a template file.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"` // from 1; 0 for the whole file
	// Template is the name of the template, if it is known.
	Template string `json:"template,omitempty"`
	Path     string `json:"path,omitempty"` // for example spec.params[0].type
	Message  string `json:"message"`
}

// String returns "file:line: template name: path: message", without the name if it is the file's.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if base := path.Base(p.File); p.Template != "" && strings.TrimSuffix(base, path.Ext(base)) != p.Template {
		b.WriteString(": template " + p.Template)
	}
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	b.WriteString(": " + p.Message)
	return OneLine(b.String())
}

// OneLine shows the line breaks in a string as escapes. A string from another author must not begin
// a new line, because that line could look like output of the command.
func OneLine(text string) string {
	return strings.NewReplacer("\r\n", `\r\n`, "\n", `\n`, "\r", `\r`).Replace(text)
}

// Problems is the error for a set of templates that cannot be used.
type Problems []Problem

// Error returns the problems, one per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns nil if there are no problems. A nil Problems would be a non-nil error.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// maxTyped is the maximum length of a name that is compared with others to find typing errors, in
// bytes. The cost grows with the square of the length.
const maxTyped = 100

// minShort is the minimum length of an abbreviation, in bytes.
const minShort = 3

// Closest returns the candidate that is nearest to name, or "" if more than a third of the letters of
// each candidate differ. If more than one letter differs, name may be an abbreviation: the shortest
// candidate that begins with it is nearer.
func Closest(name string, candidates []string) string {
	best, bestDistance := "", max(1, (len(name)+1)/3)+1
	if len(name) > maxTyped {
		return ""
	}
	name = strings.ToLower(name)
	long := ""
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := EditDistance(name, strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
		if len(name) >= minShort && strings.HasPrefix(strings.ToLower(c), name) && (long == "" || len(c) < len(long)) {
			long = c
		}
	}
	if bestDistance > 1 {
		return cmp.Or(long, best)
	}
	return best
}

// EditDistance returns how many letters to insert, delete, replace or swap with their neighbor to make
// b from a.
func EditDistance(a, b string) int {
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

// DidYouMean returns the end of a message about an unknown name.
func DidYouMean(name string, candidates []string) string {
	if c := Closest(name, candidates); c != "" {
		return fmt.Sprintf("; did you mean %q?", c)
	}
	return ""
}

// TrimPattern removes the regular expression at the end of Kubernetes' messages.
func TrimPattern(message string) string {
	message, _, _ = strings.Cut(message, " (e.g.")
	return message
}

// JoinPath returns the path of a key of an object, for example metadata.labels, or metadata.annotations["example.com/key"].
func JoinPath(path, key string) string {
	switch {
	case path == "":
		return key
	case strings.ContainsAny(key, "./[]"):
		return fmt.Sprintf("%s[%q]", path, key)
	}
	return path + "." + key
}

// Shorten returns a user's string or an expression for an error: at most its first 256 bytes.
func Shorten(text string) string { return Cut(text, 256) }

// Cut shortens a string to at most limit bytes. It cuts between words if a word ends in the last third.
func Cut(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	text = strings.ToValidUTF8(text[:limit-len(ellipsis)], "")
	if i := strings.LastIndexByte(text, ' '); i > 2*len(text)/3 {
		text = text[:i]
	}
	return strings.TrimRight(text, " ,;:") + ellipsis
}
