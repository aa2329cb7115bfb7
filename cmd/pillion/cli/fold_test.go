// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// TestWidthOf checks that $COLUMNS sets the width if it is a number.
func TestWidthOf(t *testing.T) {
	for columns, want := range map[string]int{"": Unwrapped, "80": 80, "1": MinWidth, "250": 250, "0": Unwrapped, "-80": Unwrapped, "wide": Unwrapped, "99999999999999999999": Unwrapped} {
		t.Setenv("COLUMNS", columns)
		if got := WidthOf(new(bytes.Buffer)); got != want {
			t.Errorf("COLUMNS=%s: %d columns, want %d", columns, got, want)
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	path := strings.Repeat("/folder", 20) + "/file.yaml:3:"
	word := strings.Repeat("ä", 48)
	for text, want := range map[string]string{
		"":                                   "",
		"a  b\n":                             "a  b\n",
		word + "  " + word + "12\nx":         word + "  " + word + "12\nx",
		word + "  " + word + "123\nx":        word + " \n    " + word + "123\nx",
		path + " key: wrong":                 path + "\n    key: wrong",
		"x:1: " + word + "\n" + "y:2: short": "x:1: " + word + "\ny:2: short",
	} {
		if got := Fold(nil, text); got != want {
			t.Errorf("fold(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestFoldLine checks that at every width only a single long word is wider, and that without the
// line breaks the string is unchanged.
func TestFoldLine(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var words []string
		for range random.IntN(30) {
			words = append(words, strings.Repeat("ä", random.IntN(12)*random.IntN(8)))
		}
		line, width := strings.Join(words, " "), MinWidth+random.IntN(100)
		folded := FoldLine(line, 4, width)
		if got := strings.ReplaceAll(folded, "\n    ", " "); got != line {
			t.Errorf("%q became %q", line, got)
		}
		if wide := clitest.TooWide(folded, width); len(wide) > 0 {
			t.Errorf("over %d columns: %q", width, wide)
		}
	}
}

// TestQuoteItem checks that a flag with several values reads back each value that was quoted for
// it.
func TestQuoteItem(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"a.yaml", "a,b.yaml", `a"b,c.yaml`, "a b", `"`, "it's,", "a\nb"} {
		var got []string
		flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
		flags.StringSliceVar(&got, "templates", nil, "")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+QuoteItem(path)).Output()
		if err == nil {
			err = flags.Parse([]string{"--templates", string(out)})
		}
		if err != nil || len(got) != 1 || got[0] != path {
			t.Errorf("%q is quoted as %s and read as %q: %v", path, QuoteItem(path), got, err)
		}
	}
}
