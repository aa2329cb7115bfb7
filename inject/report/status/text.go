// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// Text returns the report for users in lines of this width, with or without the colors of a terminal and bars.
func (r *Report) Text(width int, colour bool) string {
	p := &page{terminal.Page{Width: width, Colour: colour}}
	style := terminal.Bold
	if len(r.Problems)+len(r.Failing)+r.Pods.Missing+r.Pods.Altered > 0 {
		style = terminal.Red
	}
	p.printSummary(style, r.Summary, r.Problems, r.Doubts)
	r.printFailing(p)
	r.printMisplaced(p)
	r.printOutside(p)
	if len(r.Namespaces) > 0 {
		var namespaces, templates []row
		for _, n := range r.Namespaces {
			namespaces = append(namespaces, row{n.Namespace, n.Pods, n.Tally})
		}
		for _, t := range r.Templates {
			templates = append(templates, row{t.Template, t.Pods - t.NotWanted, t.Tally})
		}
		p.printTable("NAMESPACE", "PODS", namespaces)
		p.printTable("TEMPLATE", "FOR PODS", templates)
		r.printStates(p)
		r.printOwners(p)
	}
	r.printLacking(p)
	r.printMutators(p)
	r.printValidators(p)
	for i, note := range r.Notes {
		if i == 0 {
			p.WriteString("\n")
		}
		p.printLine(0, "Note: "+note)
	}
	return p.String()
}

// printStates explains the states that occur in the report.
func (r *Report) printStates(p *page) {
	first := true
	for _, w := range []struct {
		state   explain.State
		meaning string
	}{
		{explain.Outdated, "injected with a revision of the template that is no longer current"},
		{explain.Missing, "not injected, although it should be"},
		{explain.Altered, "injected and then changed by something else"},
	} {
		n := 0
		for i := range r.Templates {
			n += *r.Templates[i].countOf(w.state)
		}
		if n == 0 {
			continue
		}
		if first {
			p.WriteString("\n")
		}
		first = false
		p.printLine(0, string(w.state)+": "+w.meaning)
	}
}

// formatLine returns the mistake as a line, for an owner with this number of pods.
func (m *Mistake) formatLine(of int) string {
	head, denied := "", ""
	if m.Template != "" {
		head = m.Template + ": "
	}
	if m.Denied {
		denied = ", and a new pod like it would be denied"
	}
	return fmt.Sprintf("%s%s in %d of %s, for example %s%s: %s", head, m.Code, m.Pods, explain.Plural(of, "pod"), m.Example, denied, m.Why)
}

// printOwners prints for each owner why pods are not current, and which unknown names they request.
func (r *Report) printOwners(p *page) {
	told := map[string]bool{} // the reasons about namespaces that were printed already
	for i := range r.Owners {
		s := &r.Owners[i]
		if len(s.Reasons)+len(s.Mistakes) == 0 {
			continue
		}
		p.printParagraph(fmt.Sprintf("%s in the namespace %s", s.title(), s.Namespace))
		for _, reason := range s.Reasons {
			p.PrintLine(2, styleOf(reason.State), fmt.Sprintf("%s: %s in %d of %s, for example %s: %s", reason.Template, reason.State, reason.Pods, explain.Plural(s.Pods, "pod"), reason.Example, dropRepeated(told, s.Namespace, reason.Why)))
		}
		for i := range s.Mistakes {
			p.PrintLine(2, terminal.Yellow, s.Mistakes[i].formatLine(s.Pods))
		}
		if s.Hold != "" && len(r.Problems)+len(r.Doubts) == 0 {
			p.printLine(2, "a restart does not help: "+s.holdReason())
		}
	}
	r.printRestarts(p)
}

// holdReason returns why a restart does not help, unless a reason contains it already.
func (s *Status) holdReason() string {
	for _, reason := range s.Reasons {
		if _, why, ok := strings.Cut(s.Hold, "could not get "+reason.Template+": "); ok && strings.HasSuffix(reason.Why, why) {
			return "fix this first"
		}
	}
	return s.Hold
}

// dropRepeated returns a reason without what it says about the namespace, if another owner's line says the same already.
func dropRepeated(told map[string]bool, namespace, why string) string {
	const its = "the namespace's annotation"
	i := strings.Index(why, its)
	if i < 0 {
		return why
	}
	key := namespace + " " + why[i:]
	if told[key] {
		return why[:i] + its + ", as above"
	}
	told[key] = true
	return why
}

func (r *Report) printRestarts(p *page) {
	held := slices.IndexFunc(r.Owners, func(s Status) bool { return s.Hold != "" })
	if blocked := len(r.Problems)+len(r.Doubts) > 0; blocked && held >= 0 {
		p.printParagraph("Do not restart anything yet: it is uncertain what new pods would get. " + r.Owners[held].Hold)
		return
	}
	if n := r.changesInPlace(); n > 0 && r.commands.Rollout != "" {
		p.printParagraph(fmt.Sprintf("Pillion can update the pods of %s without a restart. To see the plan:", explain.Plural(n, "owner")))
		p.printCommand(r.commands.Rollout)
	}
	if n := len(r.Restarts()); n > 0 {
		p.printParagraph(fmt.Sprintf("A restart fixes %s:", explain.Plural(n, "workload")))
		p.printCommand(r.commands.Status+" -o name |", "xargs -r -L1 "+r.commands.Kubectl+" rollout restart")
	}
}

// changesInPlace returns the number of owners whose pods pillion rollout would change in place.
func (r *Report) changesInPlace() (n int) {
	for i := range r.Owners {
		if r.Owners[i].InPlace {
			n++
		}
	}
	return n
}

// printFailing prints which owners cannot create pods, and the advice once for owners that have the same.
func (r *Report) printFailing(p *page) {
	for i := range r.Failing {
		f := &r.Failing[i]
		p.PrintLine(0, terminal.Red, "Failing: "+f.String())
		if f.Hint != "" && (i+1 == len(r.Failing) || r.Failing[i+1].Command != f.Command) {
			p.printLine(0, f.Hint)
			p.printCommand(f.Command)
		}
	}
}

// printOutside prints why namespaces have not opted in, and the commands that opt them in.
func (r *Report) printOutside(p *page) {
	for i := range r.Outside {
		if o := &r.Outside[i]; o.Command == "" {
			p.printLine(0, "Not opted in: "+o.Namespace+": "+o.Why+".")
		} else {
			p.printLine(0, "Not opted in: "+o.Namespace+": "+o.Why+". To opt in:")
			p.printCommand(o.Command)
		}
	}
	p.printAfterwards(r.Outside, "", r.commands)
}

// printLacking suggests a command that shows why pods have no sidecar although nothing is wrong.
func (r *Report) printLacking(p *page) {
	for _, w := range r.without {
		p.printParagraph(fmt.Sprintf("In the namespace %s, %s no sidecar. To see why:", w.namespace, getsPhrase(w.pods)))
		p.printCommand(r.commands.Explain + " pod/" + w.example + " -n " + w.namespace)
	}
	if r.Unlabelled > 0 {
		p.printParagraph(fmt.Sprintf("Not opted in: %s. To see why, and how to opt in:", explain.Plural(r.Unlabelled, "more namespace")))
		p.printCommand(r.commands.Unlabelled)
	}
}

// printMutators prints the mutators in the order in which they run.
func (r *Report) printMutators(p *page) {
	if len(r.Mutators) == 0 {
		return
	}
	p.printParagraph("Other webhooks and policies that may change new pods, in order:")
	for i := range r.Mutators {
		m := &r.Mutators[i]
		p.printLine(2, fmt.Sprintf("%s, %s Pillion, reinvocationPolicy %s, in %d of %s", m.Title(), m.Runs, m.ReinvocationPolicy, m.Namespaces, explain.Plural(len(r.Namespaces), "namespace")))
		p.printLine(4, m.Effect)
	}
}

func (r *Report) printValidators(p *page) {
	if len(r.Validators) > 0 {
		p.printParagraph("Other webhooks and policies that validate new pods:")
	}
	for i := range r.Validators {
		v := &r.Validators[i]
		p.printLine(2, fmt.Sprintf("%s, failurePolicy %s, in %d of %s", webhookTitle(v.Name, v.Webhook), v.FailurePolicy, v.Namespaces, explain.Plural(len(r.Namespaces), "namespace")))
	}
}

// misplacedShown is the maximum number of misplaced workloads that are printed.
const misplacedShown = 20

// printMisplaced prints which workloads have keys in the wrong place.
func (r *Report) printMisplaced(p *page) {
	for i, m := range r.Misplaced {
		if i == misplacedShown {
			p.PrintLine(0, terminal.Yellow, fmt.Sprintf("Misplaced: %d more; use -o json to list them", len(r.Misplaced)-i))
			return
		}
		p.PrintLine(0, terminal.Yellow, fmt.Sprintf("Misplaced in the namespace %s: %s", m.Namespace, m.Why))
	}
}
