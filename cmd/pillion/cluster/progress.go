// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// quietFor is the time before the first progress message, and saysEvery the time between
// messages.
const (
	quietFor  = 2 * time.Second
	saysEvery = 200 * time.Millisecond
)

// progress writes progress messages to a terminal.
type progress struct {
	w     io.Writer // nil if stderr is not a terminal
	next  time.Time // time of the next message
	shown bool
}

func newProgress(w io.Writer) *progress {
	if !cli.IsTerminal(w) {
		return &progress{}
	}
	return &progress{w: cli.Raw(w)}
}

func (p *progress) start() { p.next, p.shown = time.Now().Add(quietFor), false }

func (p *progress) say(pods, namespaces, of int) {
	if p.w == nil || time.Now().Before(p.next) {
		return
	}
	p.next, p.shown = time.Now().Add(saysEvery), true
	text := fmt.Sprintf("%d pods, %d namespaces", pods, namespaces)
	if of > 0 {
		text = fmt.Sprintf("%d pods, %d of %d namespaces", pods, namespaces, of)
	}
	fmt.Fprintf(p.w, "\r%-60s", text+" ...")
}

func (p *progress) end() {
	if p.shown {
		fmt.Fprintf(p.w, "\r%-60s\r", "")
	}
}
