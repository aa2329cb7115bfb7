// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// Codes for why Pillion does not process the pods of a namespace.
const (
	Unlabelled   = "unlabelled"    // the namespace has no label
	UnknownLabel = "unknown_label" // the label's value is unknown
	Shadowed     = "shadow"        // the namespace is in shadow
	OptedOut     = "opted_out"     // the label's value is disabled
	Excluded     = "excluded"      // the configuration excludes it
	NotCalled    = "not_called"    // the webhooks do not match it
	Awaited      = "awaited"       // its pods must start before Pillion
	Terminating  = "terminating"   // the namespace is being deleted
)

// Outside is a namespace that has not opted in. Pillion processes only those of its pods that
// opt in individually. Its JSON is a stable format for scripts (README.md).
type Outside struct {
	Namespace string `json:"namespace"`
	Code      string `json:"code"`
	Why       string `json:"why"` // a sentence about "it"
	// Intended reports whether a user or the system requires that the namespace has not opted in. If not, the namespace
	// could opt in.
	Intended bool `json:"intended"`
	// Command opts the namespace in. It is "" if that would have no effect, or should not be
	// done.
	Command string `json:"command,omitempty"`

	arguments string // arguments for kubectl
}

// Known has further facts about a namespace. The sentences are "" if they do not apply.
type Known struct {
	Excluded string // why Pillion never processes its pods
	Awaited  string // why its pods must not wait for Pillion
	Deleted  bool
}

// NewOutside returns why a namespace is outside, or nil if it opted in and Pillion is called
// for its pods.
func NewOutside(s *Scope, known Known) *Outside {
	name, label := s.Namespace.Name, s.Namespace.Labels[inject.LabelInject]
	o := &Outside{Namespace: name, Intended: true}
	called, _ := s.callsPillion(label)
	would, why := s.callsPillion(inject.Enabled)
	_, labelled := s.Namespace.Labels[inject.LabelInject]
	switch {
	case known.Excluded != "":
		o.Code, o.Why = Excluded, known.Excluded
	case called:
		return nil
	case known.Deleted:
		o.Code, o.Why = Terminating, "it is being deleted"
	case label == inject.Disabled:
		o.Code, o.Why = OptedOut, fmt.Sprintf("it opted out with the label %s: %s, so its pods cannot opt in", inject.LabelInject, label)
	case label == inject.Enabled:
		o.Code, o.Intended = NotCalled, false
		o.Why = fmt.Sprintf("it has the label %s: %s, but the API server does not call Pillion: %s", inject.LabelInject, label, why)
	case !would:
		o.Code, o.Why = NotCalled, "Pillion's webhook excludes it: "+why
	case known.Awaited != "":
		o.Code, o.Why = Awaited, known.Awaited
	case label == inject.Shadow:
		o.Code, o.Why = Shadowed, fmt.Sprintf("it has the label %s: %s, so Pillion only reports what it would inject", inject.LabelInject, label)
		o.setOptInArguments(s, "--overwrite ")
	case labelled:
		o.Code, o.Intended = UnknownLabel, false
		o.Why = fmt.Sprintf("its label %s is %q%s", inject.LabelInject, label, inject.WrongNamespaceLabel(label))
		o.setOptInArguments(s, "--overwrite ")
	default:
		o.Code, o.Why, o.Intended = Unlabelled, "it has no label "+inject.LabelInject, false
		if wrong := inject.WrongOptIn(s.Namespace); wrong != "" {
			o.Why += "; " + wrong
		}
		o.setOptInArguments(s, "")
	}
	return o
}

// setOptInArguments sets the arguments of the command that opts the namespace in. If other webhooks may change pods after Pillion, it
// adds a warning instead: they might remove what Pillion adds, and Pillion would then deny the pods. It sets nothing if the name of the
// namespace is not valid, because the command contains it.
func (o *Outside) setOptInArguments(s *Scope, flags string) {
	if len(s.LastWord) > 0 {
		o.Why += fmt.Sprintf(". Before it opts in, opt in one pod (label %s: %s on the pod), because these may change pods after the injection: %s", inject.LabelInject, inject.Enabled, strings.Join(s.LastWord, ", "))
		return
	}
	if len(validation.IsDNS1123Label(o.Namespace)) == 0 {
		o.arguments = fmt.Sprintf("label %snamespace %s %s=%s", flags, o.Namespace, inject.LabelInject, inject.Enabled)
	}
}

// Outsiders is a report about the namespaces that have not opted in.
type Outsiders struct {
	Summary    string    `json:"summary"` // one sentence
	Namespaces []Outside `json:"namespaces"`
	// Problems are problems of Pillion itself. Doubts are facts about it that are unknown. If there
	// are problems, the report suggests no commands, because pods that opt in may be denied.
	Problems []string `json:"problems,omitempty"`
	Doubts   []string `json:"doubts,omitempty"`
	Notes    []string `json:"notes,omitempty"`

	commands Commands
}

// NewOutsiders returns the report about namespaces that have not opted in. Of is the number of all inspected namespaces.
func NewOutsiders(found []Outside, of int) *Outsiders {
	slices.SortFunc(found, func(a, b Outside) int { return strings.Compare(a.Namespace, b.Namespace) })
	r := &Outsiders{Namespaces: append([]Outside{}, found...)}
	are := func(n int) string {
		if n == 1 {
			return "is"
		}
		return "are"
	}
	all := explain.Plural(of, "namespace")
	out := func(n int) string {
		switch {
		case of == 1:
			return "1 namespace has not opted in"
		case n == 1:
			return fmt.Sprintf("1 of %s has not opted in", all)
		}
		return fmt.Sprintf("%d of %s have not opted in", n, all)
	}
	switch could := len(r.Names()); {
	case len(found) == 0:
		r.Summary = fmt.Sprintf("%d of %s opted in.", of, all)
	case could == 0:
		r.Summary = fmt.Sprintf("%d of %s %s left out on purpose.", len(found), all, are(len(found)))
	case could == len(found):
		r.Summary = out(could) + "."
	default:
		r.Summary = fmt.Sprintf("%s; %d more %s left out on purpose.", out(could), len(found)-could, are(len(found)-could))
	}
	return r
}

// Run sets the commands that the report suggests, unless there are problems with Pillion
// itself.
func (r *Outsiders) Run(c Commands) {
	r.commands = c
	for i := range r.Namespaces {
		r.Namespaces[i].setCommand(c, r.Problems)
	}
}

func (o *Outside) setCommand(c Commands, problems []string) {
	if o.arguments != "" && len(problems) == 0 {
		o.Command = c.Kubectl + " " + o.arguments
	}
}

// Names returns the namespaces that could opt in.
func (r *Outsiders) Names() (names []string) {
	for i := range r.Namespaces {
		if !r.Namespaces[i].Intended {
			names = append(names, r.Namespaces[i].Namespace)
		}
	}
	return names
}

// Text returns the report for users in lines of this width. Namespaces that could opt in come
// first.
func (r *Outsiders) Text(width int) string {
	p := &page{terminal.Page{Width: width}}
	p.printSummary("", r.Summary, r.Problems, r.Doubts)
	for _, intended := range []bool{false, true} {
		title := "\n"
		if intended {
			title = "\nLeft out on purpose:\n"
		}
		for i := range r.Namespaces {
			if o := &r.Namespaces[i]; o.Intended == intended {
				p.WriteString(title)
				title = ""
				p.printOutside(o)
			}
		}
	}
	p.printAfterwards(r.Namespaces, "\n", r.commands)
	for _, note := range r.Notes {
		p.printLine(0, "Note: "+note)
	}
	return p.String()
}

// printAfterwards prints what the commands do, if there are any.
func (p *page) printAfterwards(all []Outside, space string, commands Commands) {
	if slices.ContainsFunc(all, func(o Outside) bool { return o.Command != "" }) {
		p.WriteString(space)
		p.printLine(0, "After a namespace opts in, Pillion processes new pods. To list the workloads to restart for existing pods:")
		p.printCommand(commands.Status)
	}
}

func (p *page) printOutside(o *Outside) {
	p.printLine(0, o.Namespace+": "+o.Why)
	if o.Command != "" {
		p.printCommand(o.Command)
	}
}
