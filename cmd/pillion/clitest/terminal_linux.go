// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OnTerminal calls f with a pseudo terminal of 100 columns, and returns what f writes to it. Each line ends with \n.
// It skips the test if the machine has no pseudo terminals.
func OnTerminal(t *testing.T, f func(terminal *os.File)) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("SKIP: there is no pseudo terminal: ", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	Must(t, err)
	Must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}))
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	Must(t, err)
	written := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(master) // it ends with EIO when the terminal is closed
		written <- all
	}()
	f(terminal)
	Must(t, terminal.Close())
	return string(bytes.ReplaceAll(<-written, []byte("\r\n"), []byte("\n")))
}
