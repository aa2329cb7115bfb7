// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/templates"
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
		got := templates.Cut(test.text, test.limit)
		if got != test.want || len(got) > test.limit || !utf8.ValidString(got) {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}
