// SPDX-License-Identifier: Apache-2.0

package terminal_test

import (
	"slices"
	"testing"

	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// TestWrap checks that a line ends between words, and that a longer word gets its own line.
func TestWrap(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                          {""},
		"ten  runes":                {"ten runes"},
		"pod in pillion-syst":       {"pod in", "pillion-syst"},
		"a pillion-system b":        {"a", "pillion-system", "b"},
		"a {aa:1,bb:2,cc:3} ":       {"a", "{aa:1,bb:2,cc:3}"},
		"äöüäöüäöüäöüäöü":           {"äöüäöüäöüäöüäöü"},
		"äöüäö üäöüäö":              {"äöüäö üäöüäö"},
		"äöüäö üäöüäöü":             {"äöüäö", "üäöüäöü"},
		"run `get  all pods`. Then": {"run", "`get  all pods`.", "Then"},
		"a lone ` is no command":    {"a lone ` is", "no command"},
	} {
		if got := terminal.Wrap(text, 12); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
