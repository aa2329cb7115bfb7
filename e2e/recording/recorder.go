// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The terminal, in characters.
const (
	columns = 100
	rows    = 30
)

// span is text in one style: the names of CSS classes.
type span struct{ style, text string }

// line is a complete line, and when it was complete.
type line struct {
	at    time.Duration
	spans []span
}

// recorder is a terminal for programs that write lines in colors and change only the last one. A changing line is
// kept with its last content.
type recorder struct {
	started time.Time
	lines   []line
	current []span
	style   []string
	rest    string // an incomplete sequence
}

// Write implements [io.Writer].
func (r *recorder) Write(p []byte) (int, error) {
	r.print(time.Since(r.started), string(p))
	return len(p), nil
}

// print adds output that was written at a time.
func (r *recorder) print(at time.Duration, text string) {
	text = r.rest + text
	r.rest = ""
	for text != "" {
		n := 1
		switch {
		case text == "\r", !utf8.FullRuneInString(text):
			r.rest = text
			return
		case strings.HasPrefix(text, "\r\n"):
		case text[0] == '\n':
			r.lines = append(r.lines, line{at, r.current})
			r.current = nil
		case text[0] == '\r':
			r.current = nil
		case text[0] == '\x1b':
			if n = r.control(text); n == 0 {
				r.rest = text
				return
			}
		default:
			_, n = utf8.DecodeRuneInString(text)
			r.add(text[:n])
		}
		text = text[n:]
	}
}

// control obeys a control sequence (ECMA-48) and returns its length, or 0 if it is incomplete.
func (r *recorder) control(text string) int {
	end := strings.IndexFunc(text, func(c rune) bool { return c >= '@' && c <= '~' && c != '[' })
	if end < 0 {
		return 0
	}
	if text[end] == 'm' {
		for code := range strings.SplitSeq(strings.TrimPrefix(text[:end], "\x1b["), ";") {
			r.restyle(code)
		}
	}
	return end + 1
}

func (r *recorder) restyle(code string) {
	styles := map[string]string{"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "35": "magenta", "36": "cyan"}
	if style, ok := styles[code]; ok {
		r.style = append(r.style, style)
	} else {
		r.style = nil
	}
}

// add adds a character in the current style.
func (r *recorder) add(character string) {
	style := strings.Join(r.style, " ")
	if n := len(r.current); n > 0 && r.current[n-1].style == style {
		r.current[n-1].text += character
		return
	}
	r.current = append(r.current, span{style, character})
}

// text returns all lines, without styles.
func (r *recorder) text() string {
	var text strings.Builder
	for _, l := range r.lines {
		text.WriteString(l.text() + "\n")
	}
	return text.String()
}

// text returns the line without styles.
func (l line) text() string {
	var text strings.Builder
	for _, s := range l.spans {
		text.WriteString(s.text)
	}
	return text.String()
}

// cut leaves out the lines between the command, which is the first line, and the first one that contains from. A blank line is
// between them.
func cut(lines []line, from string) ([]line, error) {
	if from == "" {
		return lines, nil
	}
	at := slices.IndexFunc(lines[1:], func(l line) bool { return strings.Contains(l.text(), from) }) + 1
	if at == 0 {
		return nil, fmt.Errorf("no line contains %q", from)
	}
	blank := line{at: lines[at].at}
	return slices.Concat(lines[:1], []line{blank}, lines[at:]), nil
}

// How long the animation takes, without the end that stays, and the longest time between two lines.
const (
	takes   = 11 * time.Second
	longest = time.Second
)

// pace returns the lines at times that a reader can follow. A wait that is longer than an even pace stays, up to a limit. The
// others share the rest of the time.
func pace(lines []line) []line {
	waits := make([]time.Duration, len(lines))
	even := takes / time.Duration(max(len(lines)-1, 1))
	rest, others := takes, 0
	for i := range lines[1:] {
		if wait := lines[i+1].at - lines[i].at; i > 0 && wait > even {
			waits[i+1] = min(wait, longest)
			rest -= waits[i+1]
		} else {
			others++
		}
	}
	paced := slices.Clone(lines)
	for i := range paced[1:] {
		if waits[i+1] == 0 {
			waits[i+1] = max(rest, 0) / time.Duration(others)
		}
		paced[i+1].at = paced[i].at + waits[i+1]
	}
	return paced
}
