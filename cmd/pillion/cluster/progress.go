// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// quietFor is how long nothing is said about what takes time, and saysEvery how long
// after something was.
const (
	quietFor  = 2 * time.Second
	saysEvery = 200 * time.Millisecond
)

// progress is a line on a terminal about what takes longer than that.
type progress struct {
	w     io.Writer // nil if nobody sees it
	next  time.Time // when there is something to say
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
