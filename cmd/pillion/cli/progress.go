// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"time"
)

// ProgressInterval is the time between progress messages.
const ProgressInterval = 200 * time.Millisecond

// quietFor is the time before the first progress message.
const quietFor = 2 * time.Second

// progressWidth is the width of the line that shows the progress, which has to fit a terminal.
const progressWidth = 60

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
	p.next, p.shown = time.Now().Add(ProgressInterval), true
	const more = " ..."
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.w, "\r%-*s", progressWidth, text[:min(len(text), progressWidth-len(more))]+more)
}

// End removes the message.
func (p *Progress) End() {
	if p.shown {
		fmt.Fprintf(p.w, "\r%*s\r", progressWidth, "")
		p.shown = false
	}
}
