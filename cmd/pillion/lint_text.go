// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates/problem"
)

// linted is the report of lint. Its JSON is a stable format for scripts.
type linted struct {
	Problems  problem.Problems `json:"problems"`
	Warnings  []string         `json:"warnings,omitempty"` // about the pods of --pod
	Templates []trial          `json:"templates"`

	level   psa.Level // of --pod-security, or ""
	server  bool      // whether pods are sent to an API server
	command string
	paths   []string // of templates
	pods    []string // files
}

// trial is the result for one template, with the API server's answer if the pod was sent.
type trial struct {
	limits.Trial

	Accepted bool   `json:"accepted,omitempty"`
	Rejected string `json:"rejected,omitempty"`
}

func (l *linted) hasProblems() bool {
	return len(l.Problems) > 0 || slices.ContainsFunc(l.Templates, func(t trial) bool { return len(t.Fails) > 0 && t.Insists }) ||
		l.level != "" && slices.ContainsFunc(l.Templates, func(t trial) bool { return len(t.Weaker(l.level)) > 0 }) ||
		l.server && slices.ContainsFunc(l.Templates, func(t trial) bool { return !t.Accepted })
}

// text returns one line for each problem and warning. If all templates are valid, it also returns one line for each note.
func (l *linted) text() string {
	var b strings.Builder
	if len(l.Problems) > 0 {
		b.WriteString(l.Problems.Error() + "\n")
	}
	for _, warning := range l.Warnings {
		b.WriteString(problem.OneLine("warning: "+warning) + "\n")
	}
	for i := range l.Templates {
		t := &l.Templates[i]
		of := t.Template
		if t.On != "" {
			of += " on " + t.On
		}
		for _, sentence := range l.trialSentences(t) {
			if len(l.Problems) > 0 && !strings.HasPrefix(sentence, problemWord) && !strings.HasPrefix(sentence, warningWord) {
				continue
			}
			b.WriteString(problem.OneLine(of+": "+sentence) + "\n")
		}
	}
	return b.String()
}

// The words before problems and warnings.
const (
	problemWord = "problem: "
	warningWord = "warning: "
)

func (l *linted) trialSentences(t *trial) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, problem := range t.Problems() {
		if t.On == "" {
			problem += " (template in " + t.Place + ")"
		}
		say("%s%s", problemWord, problem)
	}
	for _, failing := range t.Failing() {
		say("%s%s (in %s)", warningWord, failing, t.Place)
	}
	switch {
	case t.PodSecurity == "" && len(t.Fails) > 0:
	case t.PodSecurity == "" || len(t.Fails) > 0 || len(t.Allows) > 0:
		say("%s", t.Level())
	default:
		say("fine; %s", t.Level())
	}
	all = append(all, l.allowedSentences(t)...)
	if help := l.helpCommand(t); help != "" {
		say("%s", help)
	}
	if len(t.Sample) > 0 {
		say("tried on a sample pod with %s", strings.Join(t.Sample, ", "))
	}
	all = append(all, t.Classes()...)
	if len(t.Requests) > 0 {
		var more []string
		for _, name := range slices.Sorted(maps.Keys(t.Requests)) {
			q := t.Requests[name]
			more = append(more, q.String()+" "+string(name))
		}
		say("a pod requests %s more", strings.Join(more, " and "))
	}
	for _, effect := range t.Effects {
		say("effect: %s", effect)
	}
	for _, sentence := range slices.Concat(t.Choices, t.ByValue) {
		say("hint: %s", sentence)
	}
	if t.Cut {
		say("hint: lint did not try all values of its parameters for changes of the class and of the rest of the pod. The levels of Pod Security are complete nevertheless")
	}
	for _, hint := range t.Hints {
		say("hint: %s", hint)
	}
	if wants := t.Wants(); wants != "" {
		say("%s", wants)
	}
	if len(t.Tried) > 0 {
		say("tried with the value %s; use --set to try another", strings.Join(t.Tried, ", "))
	}
	if conflict := t.Conflict(); conflict != "" {
		say("%s", conflict)
	}
	switch {
	case t.Rejected != "":
		say("%sthe API server rejects a pod with it: %s", problemWord, t.Rejected)
	case t.Accepted:
		say("the API server accepts a pod with it")
	case l.server:
		say("the API server got no pod with it")
	}
	return all
}

// helpCommand returns a command that shows more about a template that was not tried.
func (l *linted) helpCommand(t *trial) string {
	if len(t.Unmet) == 0 {
		return ""
	}
	each := func(before string, args []string) (all string) {
		for _, arg := range args {
			if arg == "-" && before != "" {
				arg = "FILE" // standard input can be read only once
			}
			all += " " + before + cli.Quote(arg)
		}
		return all
	}
	if t.On == "" {
		return "to try it, write a test with a pod that meets this, or run: " + l.command + each("", l.paths) + " --pod FILE"
	}
	return "to see all rules: " + strings.TrimSuffix(l.command, "lint") + "explain" + each("-f ", l.pods) + each("--templates ", l.paths)
}

// allowedSentences returns what the values of parameters allow, and why that violates the level of --pod-security.
func (l *linted) allowedSentences(t *trial) (all []string) {
	var weaker []string
	if l.level != "" {
		weaker = t.Weaker(l.level)
	}
	for _, sentence := range weaker {
		all = append(all, fmt.Sprintf("%s%s (template in %s)", problemWord, sentence, t.Place))
	}
	for i := range t.Allows {
		if sentence := t.Allows[i].Sentence(); !slices.Contains(weaker, sentence) {
			all = append(all, warningWord+sentence)
		}
	}
	return all
}
