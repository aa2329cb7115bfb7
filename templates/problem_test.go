// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// TestCut checks that a long string keeps to the limit, ends with a whole word if one is near, and
// stays valid, whatever it contains.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 5, "short"},
		{"a sentence that ends", 19, "a sentence that…"},
		{"a word" + strings.Repeat("x", 20), 12, "a wordxxx…"},
		{"key: value", 8, "key…"},
		{"äöüäöü", 8, "äö…"},
		{strings.Repeat("\x80", 30), 20, "…"},
	} {
		got := problem.Cut(test.text, test.limit)
		if got != test.want || len(got) > test.limit || !utf8.ValidString(got) {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

// TestCutExpressions checks that an expression may end anywhere, with any of these characters behind it: its problems have
// a line and a message, and no column that does not exist.
func TestCutExpressions(t *testing.T) {
	t.Parallel()
	const whole = `pod.spec.containers.exists(c, c.name == 'a') && params.?n.orValue({'k': [1]})['k'].map(x, x + 1).size() > 0 ? true : false`
	for end := range len(whole) {
		for _, more := range []string{"", ".", ",", " .,", "(", ")", "[", "{", "'", "?", "\x00", "é(", "\n", "\r\n("} {
			condition := whole[:end] + more
			_, problems := templates.Parse("x.yaml", fmt.Appendf(nil,
				"{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {match: {condition: %q}, pod: {}}}", condition))
			if slices.ContainsFunc(problems, func(p problem.Problem) bool {
				return p.Line < 0 || p.Message == "" || strings.Contains(p.Message, "column 0")
			}) {
				t.Errorf("%q: %v", condition, problems)
			}
		}
	}
}
