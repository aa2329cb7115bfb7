// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// rolloutScreen prints what a rollout does: a bar on a terminal, lines elsewhere, or JSON.
type rolloutScreen struct {
	w, stderr io.Writer
	json      bool
	acts      int // the number of workloads that change
	left      int // the number of pods that the rollout cannot update
	ending    int // the number of pods of Jobs, which run until they end
	in        *bufio.Reader

	mu          sync.Mutex // guards all below
	done, total int
	updated     int
	skipped     int
	gone        int
	shown       bool
	err         error // of the writer
}

// writeEvent writes an event as JSON.
func (s *rolloutScreen) writeEvent(e executor.Event) { s.keepError(cli.JSONEncoder(s.w, "").Encode(e)) }

func (s *rolloutScreen) keepError(err error) {
	if err != nil && s.err == nil {
		s.err = err
	}
}

// isYes asks a question.
func (s *rolloutScreen) isYes(in io.Reader, question string) bool {
	fmt.Fprint(s.stderr, question)
	answer, err := s.answerReader(in).ReadString('\n')
	if err != nil && answer == "" {
		return false
	}
	a := strings.ToLower(strings.TrimSpace(answer))
	return a == "y" || a == "yes"
}

// answerReader reads the user's answers. There is one reader, because it may read more than one line at a time.
func (s *rolloutScreen) answerReader(in io.Reader) *bufio.Reader {
	if s.in == nil {
		s.in = bufio.NewReader(in)
	}
	return s.in
}

func (s *rolloutScreen) printLine(style, format string, args ...any) {
	s.keepError(cli.Say(s.w, style, fmt.Sprintf(format, args...)))
}

// printPlan prints how each workload is updated.
func (s *rolloutScreen) printPlan(t *cluster.Targets) {
	behind := 0
	for _, w := range t.Workloads {
		behind += len(w.Behind)
		if w.Acts() {
			s.acts++
			s.total += len(w.Todo())
		}
		switch w.Way {
		case rollout.Cannot:
			s.left += len(w.Behind)
		case rollout.Finish:
			s.ending += len(w.Behind)
		case rollout.ChangeInPlace:
			s.left += len(w.Behind) - len(w.Todo())
		}
	}
	if s.json {
		for _, w := range t.Workloads {
			s.writeEvent(plannedEvent(w, s.total))
		}
		return
	}
	for _, note := range t.Notes {
		s.keepError(cli.Say(s.stderr, terminal.Yellow, "pillion: "+note))
	}
	if behind == 0 {
		s.printLine(terminal.Bold, "All pods are current (%s).", explain.Plural(t.Pods, "pod"))
		return
	}
	s.printLine(terminal.Bold, "%d of %s are not current:", behind, explain.Plural(t.Pods, "pod"))
	if cli.WantsColour(s.w) {
		bar := terminal.Bar(barCells, terminal.Share{Style: terminal.Green, Count: t.Pods - behind}, terminal.Share{Style: terminal.Yellow, Count: behind - s.left}, terminal.Share{Style: terminal.Red, Count: s.left})
		_, err := fmt.Fprintf(cli.Raw(s.w), "  %s\n", bar)
		s.keepError(err)
	}
	for _, w := range t.Workloads {
		s.printWorkload(w)
	}
}

func plannedEvent(w *rollout.Workload, total int) executor.Event {
	e := executor.Event{Time: time.Now().UTC().Truncate(time.Millisecond), Type: "plan", Namespace: w.Namespace, Workload: w.Title(), Way: w.Way, Pods: len(w.Behind), Message: w.Why, Total: total}
	if len(w.Behind) > 0 {
		e.Pod, e.Changes = w.Behind[0].Name, w.Behind[0].Changes
	}
	return e
}

// printWorkload prints one line of the plan, and what stays because another client has changed it.
func (s *rolloutScreen) printWorkload(w *rollout.Workload) {
	what := w.Why
	if w.Way == rollout.ChangeInPlace {
		what = w.Summary()
		if w.Why != "" {
			what += " (" + w.Why + ")"
		}
	}
	style := ""
	if w.Way == rollout.Cannot {
		style = terminal.Red
	}
	s.printLine(style, "  %-8s %s %s, %s: %s", w.Way, w.Namespace, w.Title(), explain.Plural(len(w.Behind), "pod"), what)
	const most = 3
	said := map[string]bool{}
	for _, p := range w.Behind {
		for i := range p.Kept {
			if text := p.Kept[i].String(); !said[text] && len(said) < most && text != w.Why {
				said[text] = true
				s.printLine(terminal.Yellow, "           pod %s: %s", p.Name, text)
			}
		}
	}
}

// reportEvent prints an event.
func (s *rolloutScreen) reportEvent(e executor.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done, s.total = e.Done, e.Total
	if e.Type == "pod" || e.Type == "workload" {
		s.updated += max(1, e.Pods)
	}
	style := ""
	switch e.Type {
	case "skipped":
		s.skipped += max(1, e.Pods)
		style = terminal.Yellow
	case "gone":
		s.gone += max(1, e.Pods)
		style = terminal.Yellow
	case "waiting":
		style = terminal.Yellow
	}
	switch {
	case s.json:
		s.writeEvent(e)
	case e.Type == "failed":
		s.eraseBar()
	case cli.IsTerminal(s.stderr):
		if style != "" {
			s.eraseBar()
			s.keepError(cli.Say(s.stderr, style, eventSentence(e)))
		}
		s.drawBar(e)
	default:
		s.printLine(style, "%s", eventSentence(e))
	}
}

// eventSentence returns an event as a line.
func eventSentence(e executor.Event) string {
	switch e.Type {
	case "wave":
		return e.Message
	case "skipped":
		return fmt.Sprintf("%d/%d %s %s: skipped, %s", e.Done, e.Total, e.Namespace, eventObject(e), e.Message)
	case "gone":
		return fmt.Sprintf("%d/%d %s %s: gone, %s", e.Done, e.Total, e.Namespace, eventObject(e), e.Message)
	case "waiting":
		return fmt.Sprintf("%d/%d %s %s: waits for %s", e.Done, e.Total, e.Namespace, eventObject(e), e.Message)
	case "workload":
		return fmt.Sprintf("%d/%d %s %s: replaced its pods", e.Done, e.Total, e.Namespace, eventObject(e))
	}
	return fmt.Sprintf("%d/%d %s %s: %s, %s", e.Done, e.Total, e.Namespace, eventObject(e), e.Way, e.Message)
}

func eventObject(e executor.Event) string {
	if e.Pod != "" {
		return "Pod/" + e.Pod
	}
	return e.Workload
}

// barCells is the width of the bars of a rollout.
const barCells = 20

// drawBar replaces the bar on a terminal.
func (s *rolloutScreen) drawBar(e executor.Event) {
	full := barCells
	if e.Total > 0 {
		full = barCells * e.Done / e.Total
	}
	bar := strings.Repeat("#", full) + strings.Repeat(".", barCells-full)
	if cli.WantsColour(s.stderr) && e.Total > 0 {
		bar = terminal.Bar(barCells, terminal.Share{Style: terminal.Green, Count: e.Done - s.skipped - s.gone}, terminal.Share{Style: terminal.Yellow, Count: s.skipped + s.gone}, terminal.Share{Style: terminal.Dim, Count: e.Total - e.Done})
	}
	s.shown = true
	fmt.Fprintf(cli.Raw(s.stderr), "\r[%s] %-48s", bar, fmt.Sprintf("%d of %d pods", e.Done, e.Total))
}

func (s *rolloutScreen) eraseBar() {
	if s.shown {
		fmt.Fprintf(cli.Raw(s.stderr), "\r%-72s\r", "")
		s.shown = false
	}
}

// clearBar removes the bar.
func (s *rolloutScreen) clearBar() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eraseBar()
}

// printNote prints a sentence while a rollout runs.
func (s *rolloutScreen) printNote(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eraseBar()
	s.keepError(cli.Say(s.stderr, terminal.Yellow, "pillion: "+text))
}

// printStopped prints the last event of a rollout that has failed or was interrupted.
func (s *rolloutScreen) printStopped(err error) {
	if s.json {
		s.writeEvent(executor.Event{Time: time.Now().UTC().Truncate(time.Millisecond), Type: "stopped", Message: strings.TrimPrefix(incompletePhrase(err), "; "), Done: s.done, Total: s.total})
	}
}

// printEnd prints the last event.
func (s *rolloutScreen) printEnd() {
	message, style := fmt.Sprintf("Updated %s.", explain.Plural(s.updated, "pod")), terminal.Bold
	switch s.gone {
	case 0:
	case 1:
		message += " 1 pod is gone."
	default:
		message += fmt.Sprintf(" %d pods are gone.", s.gone)
	}
	if s.left > 0 {
		style = terminal.Red
		message += fmt.Sprintf(" Left %s that it cannot update.", explain.Plural(s.left, "pod"))
	}
	if s.ending > 0 {
		message += fmt.Sprintf(" Left %s of running Jobs unchanged.", explain.Plural(s.ending, "pod"))
	}
	switch {
	case s.json:
		s.writeEvent(executor.Event{Time: time.Now().UTC().Truncate(time.Millisecond), Type: "done", Message: message, Done: s.done, Total: s.total})
	case s.acts+s.left+s.ending > 0:
		s.printLine(style, "%s", message)
	}
}

// incompletePhrase returns what a rollout has begun and not completed, as the end of a sentence.
func incompletePhrase(err error) string {
	if failed, ok := errors.AsType[*executor.FailedError](err); ok && len(failed.Incomplete) > 0 {
		return "; half done: " + strings.Join(failed.Incomplete, ", ")
	}
	return ""
}
