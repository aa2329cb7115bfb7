// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"time"
)

// quietFor is the time before the first progress message, and saysEvery the time between
// messages.
const (
	quietFor  = 2 * time.Second
	saysEvery = 200 * time.Millisecond
)

// Progress writes progress messages to a terminal. Its zero value writes none.
type Progress struct {
	w     io.Writer // nil if stderr is not a terminal
	next  time.Time // time of the next message
	shown bool
}

// NewProgress returns a Progress that writes to w if that is a terminal.
func NewProgress(w io.Writer) *Progress {
	if !IsTerminal(w) {
		return &Progress{}
	}
	return &Progress{w: Raw(w)}
}

// Start begins the time without messages.
func (p *Progress) Start() { p.next, p.shown = time.Now().Add(quietFor), false }

// Say replaces the message, if there was none for a while.
func (p *Progress) Say(format string, args ...any) {
	if p.w == nil || time.Now().Before(p.next) {
		return
	}
	p.next, p.shown = time.Now().Add(saysEvery), true
	fmt.Fprintf(p.w, "\r%-60s", fmt.Sprintf(format, args...)+" ...")
}

// End removes the message.
func (p *Progress) End() {
	if p.shown {
		fmt.Fprintf(p.w, "\r%-60s\r", "")
		p.shown = false
	}
}
