// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/templates"
)

// linted is the report of lint. Its JSON is a stable format for scripts.
type linted struct {
	Problems  templates.Problems `json:"problems"`
	Warnings  []string           `json:"warnings,omitempty"` // about the pods of --pod
	Templates []trial            `json:"templates"`

	server  bool // whether pods are sent to an API server
	command string
	paths   []string // of templates
	pods    []string // files
}

// trial is the result for one template, with the API server's answer if the pod was sent.
type trial struct {
	fit.Trial

	Accepted bool   `json:"accepted,omitempty"`
	Rejected string `json:"rejected,omitempty"`
}

func (l *linted) bad() bool {
	return len(l.Problems) > 0 || slices.ContainsFunc(l.Templates, func(t trial) bool { return len(t.Fails) > 0 && t.Insists }) ||
		l.server && slices.ContainsFunc(l.Templates, func(t trial) bool { return !t.Accepted })
}

// text returns one line for each problem. If there is none, it returns one line for each note.
func (l *linted) text() string {
	if len(l.Problems) > 0 {
		return l.Problems.Error() + "\n"
	}
	var b strings.Builder
	for _, warning := range l.Warnings {
		b.WriteString(templates.OneLine("warning: "+warning) + "\n")
	}
	for i := range l.Templates {
		t := &l.Templates[i]
		of := t.Template
		if t.On != "" {
			of += " on " + t.On
		}
		for _, sentence := range l.sentences(t) {
			b.WriteString(templates.OneLine(of+": "+sentence) + "\n")
		}
	}
	return b.String()
}

func (l *linted) sentences(t *trial) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, fails := range t.Fails {
		switch {
		case t.Insists && t.On == "":
			say("problem: %s; such pods are denied (template in %s)", fails, t.Place)
		case t.Insists:
			say("problem: %s", fails)
		default:
			say("warning: %s; such pods do not get the template (in %s)", fails, t.Place)
		}
	}
	if len(t.Fails) == 0 || t.PodSecurity != "" {
		level := l.level(t)
		if len(t.Fails) > 0 {
			level = strings.TrimPrefix(level, "fine; ")
		}
		say("%s", level)
	}
	if help := l.help(t); help != "" {
		say("%s", help)
	}
	if len(t.Sample) > 0 {
		say("tried on a sample pod with %s", strings.Join(t.Sample, ", "))
	}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if to := t.QoS[class]; to != "" {
			say("a %s pod becomes %s, because %s", class, to, t.QoSWhy[class])
		}
	}
	if len(t.Requests) > 0 {
		var more []string
		for _, name := range slices.Sorted(maps.Keys(t.Requests)) {
			q := t.Requests[name]
			more = append(more, q.String()+" "+string(name))
		}
		say("a pod requests %s more", strings.Join(more, " and "))
	}
	for _, hint := range t.Hints {
		say("hint: %s", hint)
	}
	if len(t.Needs) > 0 {
		without := "the pod does not get the template"
		if t.Denied {
			without = "the pod is denied"
		}
		say("the pod or its namespace must set %s, because there is no default; otherwise %s", strings.Join(t.Needs, ", "), without)
	}
	if len(t.Tried) > 0 {
		say("tried with the value %s; use --set to try another", strings.Join(t.Tried, ", "))
	}
	if t.Conflicts != "" {
		say("conflict with the other templates: %s", t.Conflicts)
	}
	switch {
	case t.Rejected != "":
		say("the API server rejects a pod with it: %s", t.Rejected)
	case t.Accepted:
		say("the API server accepts a pod with it")
	case l.server:
		say("the API server got no pod with it")
	}
	return all
}

// level returns the first sentence about a template.
func (l *linted) level(t *trial) string {
	because := ""
	if t.Why != "" {
		because = ", " + t.Why
	}
	switch {
	case t.PodSecurity == "":
		return "valid, but not tried: " + t.Why
	case t.Without == t.PodSecurity:
		return fmt.Sprintf("fine; Pod Security: %s, with and without it", t.PodSecurity)
	case t.Without != "":
		return fmt.Sprintf("fine; Pod Security: %s (without it: %s)%s", t.PodSecurity, t.Without, because)
	}
	return fmt.Sprintf("fine; Pod Security: %s%s", t.PodSecurity, because)
}

// help returns a command that shows more about a template that was not tried.
func (l *linted) help(t *trial) string {
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
		return "to try it on a pod that meets this: " + l.command + each("", l.paths) + " --pod FILE"
	}
	return "to see all rules: " + strings.TrimSuffix(l.command, "lint") + "explain" + each("-f ", l.pods) + each("--templates ", l.paths)
}
