// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/problem"
)

// If all warnings of a response together have more than 4096 runes, the API server truncates each of them to 256
// runes. 16 warnings of 256 bytes never have more. The API server recommends
// at most 120 runes for each warning. Sentences are not cut at 120, because what to do is at their end. They are not folded
// either, because kubectl folds them on a terminal.
const (
	maxWarning  = 256
	maxWarnings = 16
	maxPieces   = 6 // of one sentence
	further     = "... "
)

// Audit annotations, errors and denials have bounds, because a sentence may quote an
// annotation of the pod, which may have 256 KiB.
const (
	maxAudit    = 512
	maxSentence = 1024
	maxName     = 256 // in the log; names of an API server are shorter
)

// inAuditLog is the hint where the warnings are that are left out.
const inAuditLog = "; the audit log has them"

// clipWarnings prepares sentences for the API server, which silently drops empty warnings and
// those with control characters. If there are too many, the last one ends with the given hint.
func clipWarnings(all []string, where string) []string {
	if len(all) == 0 {
		return nil
	}
	var fit []string
	seen := map[string]bool{"": true}
	for _, whole := range all {
		for _, text := range splitSentence(whole) {
			if text = clipLine(text, maxWarning); !seen[text] {
				seen[text] = true
				fit = append(fit, text)
			}
		}
	}
	if more := len(fit) - (maxWarnings - 1); more > 1 {
		fit = append(fit[:maxWarnings-1], fmt.Sprintf("and %d more warnings%s", more, where))
	}
	return fit
}

// splitSentence divides a sentence that is too long for one warning. It divides it only after items of a list that end with a
// parenthesis, as in sentences about Pod Security: there, the end of the sentence is as useful as the rest.
func splitSentence(text string) (all []string) {
	const end = "), "
	for len(text) > maxWarning && len(all) < maxPieces-1 {
		at := strings.LastIndex(text[:maxWarning], end)
		if at < len(further) {
			break
		}
		all = append(all, text[:at+len(end)-1])
		text = further + text[at+len(end):]
	}
	return append(all, text)
}

// isPrintable reports whether text is ASCII without control characters, as most is.
func isPrintable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// clipLine returns a string as one line of at most limit bytes.
func clipLine(text string, limit int) string {
	if !isPrintable(text) && strings.ContainsFunc(text, isMisleading) {
		text = strings.Map(func(r rune) rune {
			if isMisleading(r) {
				return ' '
			}
			return r
		}, text)
	}
	return problem.Cut(strings.TrimSpace(text), limit)
}

// isMisleading reports whether a character must not appear in a line of text.
func isMisleading(r rune) bool { return r == '\n' || r == '\t' || inject.Hidden(r) }
