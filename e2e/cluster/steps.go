// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const (
	quietFor    = 2 * time.Second
	lineEvery   = 10 * time.Second
	redrawEvery = 250 * time.Millisecond
)

// Steps shows what is being done and how long it takes: one line that counts on a terminal, a line
// every few seconds otherwise.
type Steps struct {
	w   io.Writer
	tty bool
}

// NewSteps returns Steps that write to w.
func NewSteps(w io.Writer) *Steps {
	f, ok := w.(*os.File)
	return &Steps{w: w, tty: ok && term.IsTerminal(int(f.Fd()))}
}

// Do runs f and reports on it as what. A nil Steps reports nothing.
func (s *Steps) Do(what string, f func() error) error {
	if s == nil {
		return f()
	}
	started := time.Now()
	done := make(chan error, 1)
	go func() { done <- f() }()

	every := lineEvery
	if s.tty {
		every = redrawEvery
	}
	next := time.NewTimer(quietFor)
	defer next.Stop()
	for {
		select {
		case err := <-done:
			s.finish(what, time.Since(started), err)
			return err
		case <-next.C:
			s.running(what, time.Since(started))
			next.Reset(every)
		}
	}
}

func (s *Steps) running(what string, elapsed time.Duration) {
	if s.tty {
		fmt.Fprintf(s.w, "\r\033[K  … %-64s %8s", what, elapsed.Truncate(time.Second))
		return
	}
	fmt.Fprintf(s.w, "  … %-64s %8s\n", what, elapsed.Truncate(time.Second))
}

func (s *Steps) finish(what string, elapsed time.Duration, err error) {
	if s.tty {
		fmt.Fprint(s.w, "\r\033[K")
	}
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	fmt.Fprintf(s.w, "  %s %-64s %8s\n", mark, what, fmt.Sprintf("%.1fs", elapsed.Seconds()))
}
