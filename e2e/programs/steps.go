// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	quietFor    = 2 * time.Second
	lineEvery   = 10 * time.Second
	redrawEvery = 250 * time.Millisecond
	timeColumn  = 8
	textColumns = 64
)

// Steps shows the current step and its duration: on a terminal in one changing line, otherwise
// with a line every few seconds.
type Steps struct {
	w     io.Writer
	tty   bool
	width int // of the terminal

	quietFor, every time.Duration
	mu              sync.Mutex // of w
}

// NewSteps returns Steps that write to w.
func NewSteps(w io.Writer) *Steps {
	s := &Steps{w: w, quietFor: quietFor, every: lineEvery}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.tty, s.width, s.every = true, 80, redrawEvery
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			s.width = min(width, 100)
		}
	}
	return s
}

// Progress is the progress of a step. A nil Progress ignores updates.
type Progress struct {
	mu      sync.Mutex
	text    string
	publish func(string)
}

// Set replaces the progress.
func (p *Progress) Set(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = fmt.Sprintf(format, args...)
	if p.publish != nil {
		p.publish(p.text)
	}
}

func (p *Progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// Do runs f and shows it as a step. A nil Steps shows nothing.
func (s *Steps) Do(what string, f func() error) error {
	return s.Follow(what, func(*Progress) error { return f() })
}

// Follow is Do for a long function that sets its progress. If f takes less than two seconds,
// only its end is shown.
func (s *Steps) Follow(what string, f func(*Progress) error) error {
	progress := &Progress{}
	if s == nil {
		return f(progress)
	}
	started := time.Now()
	done := make(chan error, 1)
	go func() { done <- f(progress) }()

	next := time.NewTimer(s.quietFor)
	defer next.Stop()
	for {
		select {
		case err := <-done:
			s.finish(what, time.Since(started), err)
			return err
		case <-next.C:
			text := what
			if far := progress.String(); far != "" {
				text += ": " + far
			}
			s.running(text, time.Since(started))
			next.Reset(s.every)
		}
	}
}

// Say prints a permanent line.
func (s *Steps) Say(format string, args ...any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.w, "  "+format+"\n", args...)
}

func (s *Steps) running(text string, elapsed time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	took := elapsed.Truncate(time.Second).String()
	if s.tty {
		columns := max(s.width-timeColumn-6, 10) // erasing would not work for a line that the terminal wraps
		fmt.Fprintf(s.w, "  … %-*s %*s", columns, Clip(text, columns), timeColumn, took)
		return
	}
	fmt.Fprintf(s.w, "  … %-*s %*s\n", textColumns, text, timeColumn, took)
}

func (s *Steps) finish(what string, elapsed time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	fmt.Fprintf(s.w, "  %s %-*s %*s\n", mark, textColumns, what, timeColumn, fmt.Sprintf("%.1fs", elapsed.Seconds()))
}

// erase removes the changing line.
func (s *Steps) erase() {
	if s.tty {
		fmt.Fprint(s.w, "\r\033[K")
	}
}

// Clip shortens a string to this many characters.
func Clip(text string, to int) string {
	runes := []rune(text)
	if len(runes) <= to {
		return text
	}
	return string(runes[:to-1]) + "…"
}
