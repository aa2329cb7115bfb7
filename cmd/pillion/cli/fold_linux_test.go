// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// TestWidthOfTerminal checks that the width is the terminal's, unless $COLUMNS sets another one.
func TestWidthOfTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("SKIP: there is no pseudo terminal: ", err)
	}
	defer terminal.Close()
	t.Setenv("COLUMNS", "")
	for columns, want := range map[uint16]int{72: 72, 7: MinWidth, 0: TextWidth} {
		clitest.Must(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
		if got := WidthOf(&Screen{w: terminal}); got != want {
			t.Errorf("%d columns, want %d", got, want)
		}
	}
	t.Setenv("COLUMNS", "64")
	if got := WidthOf(&Screen{w: terminal}); got != 64 {
		t.Errorf("%d columns, want those of $COLUMNS", got)
	}
}
