// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"slices"
	"testing"

	"github.com/pillion-dev/pillion/inject/explain"
)

// TestWrap: a line ends at a space; a word that is longer than a line after a comma, if it has one there.
func TestWrap(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                    {""},
		"ten  runes":          {"ten runes"},
		"pod in pillion-syst": {"pod in", "pillion-syst"},
		"a pillion-system b":  {"a", "pillion-syst", "em b"},
		"a {aa:1,bb:2,cc:3}":  {"a {aa:1,", "bb:2,cc:3}"},
		"a {aaaaaaaaa:1,b:2}": {"a", "{aaaaaaaaa:1", ",b:2}"},
		"{aa:1,bb:2,cc:3,d}":  {"{aa:1,bb:2,", "cc:3,d}"},
		"äöüäöüäöüäöüäöü":     {"äöüäöüäöüäöü", "äöü"},
	} {
		if got := explain.Wrap(text, 12); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
