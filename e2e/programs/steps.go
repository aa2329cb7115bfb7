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

// Steps shows what is being done and how long it takes: one line that counts on a terminal, a line
// every few seconds otherwise.
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

// Progress is how far a step is. A nil Progress discards what it is given.
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

// Do runs f and reports on it as what. A nil Steps reports nothing.
func (s *Steps) Do(what string, f func() error) error {
	return s.Follow(what, func(*Progress) error { return f() })
}

// Follow is Do for something long, which sets its progress. If f takes less than two seconds, only the end is shown.
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

// Say prints a line that stays.
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
		columns := max(s.width-timeColumn-6, 10) // a line that the terminal wraps could not be erased
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

// erase removes a line that counts.
func (s *Steps) erase() {
	if s.tty {
		fmt.Fprint(s.w, "\r\033[K")
	}
}

// Clip shortens text to that many characters.
func Clip(text string, to int) string {
	runes := []rune(text)
	if len(runes) <= to {
		return text
	}
	return string(runes[:to-1]) + "…"
}
