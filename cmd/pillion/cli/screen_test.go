// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// TestScreenWrites checks that a character that is split between two writes counts as one, and that
// an incomplete character is made visible.
func TestScreenWrites(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\u202eb\u009bc\x1bd": `a\u202eb\u009bc\u001bd`, "ä€\U0001F600\r\n\r\nx\ry\r": "ä€\U0001F600\n\nx" + `\u000dy\u000d`,
		"\xe2\x80": `\xe2\x80`, "\x9b\xff": `\x9b\xff`, "": "",
	} {
		var whole, parts bytes.Buffer
		for _, out := range []*bytes.Buffer{&whole, &parts} {
			s := &Screen{w: out}
			for i := range len(text) {
				if out == &whole {
					_, err := s.Write([]byte(text))
					clitest.Must(t, err)
					break
				}
				_, err := s.Write([]byte{text[i]})
				clitest.Must(t, err)
			}
			s.End()
			if out.String() != want {
				t.Errorf("%q is shown as %q, not %q", text, out, want)
			}
		}
	}
	if _, err := (&Screen{w: failing{}}).Write([]byte("x")); err == nil {
		t.Error("an error is lost")
	}
}

// TestScreenDocument checks that a document is written unchanged to a file, and with visible
// characters to a terminal.
func TestScreenDocument(t *testing.T) {
	t.Parallel()
	file := &Screen{w: &bytes.Buffer{}}
	if ForDocument(file) != file.w {
		t.Error("a document in a pipe would be changed")
	}
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as a terminal is
	clitest.Must(t, err)
	defer device.Close()
	if terminal := (&Screen{w: device}); ForDocument(terminal) != terminal {
		t.Error("a document on a terminal is not shown as other text")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }
