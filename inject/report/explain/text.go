// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Detail is the level of detail of a report.
type Detail int

// The levels of detail. Brief puts the templates that do not apply, and that the pod does not
// request, on one line. All shows all templates. Verbose also shows the rules that did not
// apply, and all webhooks.
const (
	Brief Detail = iota
	All
	Verbose
)

// Text returns the report for users in lines of this width: first what happens to the pod and
// what is wrong, then the reasons for each template.
func (r *Report) Text(width int, colour bool, detail Detail) string {
	p := &page{terminal.Page{Width: width, Colour: colour}, detail == Verbose}
	p.printLine(terminal.Bold, r.title())
	if len(r.Same) > 0 {
		p.printLine("", fmt.Sprintf("%d more have the same result: %s", len(r.Same), r.otherNames()))
	}
	p.printLine("", strings.TrimSpace(r.firstLine()+" "+r.OptedIn))
	if r.OptInCommand != "" {
		p.WriteString("  " + inject.Visible(r.OptInCommand) + "\n")
	}
	if r.Failing != "" {
		p.PrintRow("  ", 2, terminal.Red, "failing: "+r.Failing)
		if r.FailingHint != "" {
			p.PrintRow("  ", 2, "", r.FailingHint)
			p.WriteString("    " + inject.Visible(problem.OneLine(r.FailingCommand)) + "\n")
		}
	}
	for _, text := range r.Shows {
		p.PrintRow("  ", 2, "", text)
	}
	p.printFindings(r)
	for _, m := range r.Misplaced {
		p.PrintRow("  ", 2, terminal.Yellow, string(inject.CodeMisplaced)+": "+m)
	}
	for _, m := range r.Original {
		p.PrintRow("  ", 2, terminal.Red, "without Pillion too, the API server would deny the pod: "+m)
	}
	for _, m := range r.Misfits {
		p.PrintRow("  ", 2, terminal.Red, m)
	}
	for _, m := range r.Effects {
		p.PrintRow("  ", 2, terminal.Yellow, "effect: "+m)
	}
	p.printRunning(r.Running, r.Object.Kind)
	p.printWebhooks(r)
	for _, name := range slices.Sorted(maps.Keys(r.Gone)) {
		if r.Unread {
			p.printLine("", fmt.Sprintf("According to the pod's annotation, revision %[2]s of the template %[1]s was injected.", name, r.Gone[name]))
			continue
		}
		p.printLine(terminal.Yellow, fmt.Sprintf("According to the pod's annotation, revision %[2]s of the template %[1]s was injected. This template does not exist here; "+
			"if the pod was injected with other templates, use those.", name, r.Gone[name]))
	}
	var others []*Template
	for i := range r.Templates {
		if t := &r.Templates[i]; detail == Brief && r.isIrrelevant(t) {
			others = append(others, t)
		} else {
			p.printTemplate(r, t)
		}
	}
	p.printOthers(others, len(others) < len(r.Templates))
	for i, note := range r.Notes {
		if i == 0 {
			p.WriteString("\n")
		}
		p.PrintRow("Note: ", 6, "", note)
	}
	return p.String()
}

// firstLine returns the summary. If running pods differ from what it says about a new pod, it adds that.
func (r *Report) firstLine() string {
	if r.Running == nil || len(r.Running.Behind) == 0 {
		return r.Summary
	}
	return strings.Replace(r.Summary, "The pod gets", "A new pod gets", 1) + " Running pods differ from a new one, as listed here."
}

func (r *Report) title() string {
	title := r.Object.Kind + "/" + r.Object.Name
	if r.Object.Namespace != "" {
		title += " in the namespace " + r.Object.Namespace
	}
	return title
}

// printFindings prints what is wrong with the pod. Findings that deny it come first.
func (p *page) printFindings(r *Report) {
	all := r.Final.Findings
	if len(all) == 0 {
		all = r.Mistakes
	}
	for i := range all {
		style := terminal.Yellow
		if all[i].Mode == v1alpha1.Deny {
			style = terminal.Red
		}
		head := ""
		if all[i].Template != "" {
			head = all[i].Template + ": "
		}
		p.PrintRow("  ", 2, style, head+string(all[i].Code)+pathPhrase(all[i].Path, all[i].Message)+": "+all[i].Message)
	}
}

// printWebhooks prints why the API server calls no webhook, or, if verbose, whether it calls each
// one.
func (p *page) printWebhooks(r *Report) {
	if r.Called == nil {
		return
	}
	if len(r.Webhooks) == 0 {
		p.printLine(terminal.Red, "No webhook configuration of Pillion is installed. An administrator has to apply the manifests of Pillion again; `pillion check` lists what is missing.")
	}
	for _, w := range r.Webhooks {
		if !p.verbose && (*r.Called || w.Type == Validating || w.Type == Shadow && !w.Called) {
			continue
		}
		style, word := terminal.Dim, "is not called: "
		if w.Called {
			style, word = "", "is called: "
		}
		p.PrintRow(fmt.Sprintf("  %-11s", w.Type), 13, style, w.Name+" "+word+w.Reason)
	}
}

func (p *page) printTemplate(r *Report, t *Template) {
	outcome := r.Outcome(t)
	style := terminal.Yellow
	switch {
	case t.State == Missing, t.State == Altered, t.Code == inject.CodeNotInjected, t.Code.Failed():
		style = terminal.Red
	case t.State == Current, !r.Object.Live && t.Code.Succeeded():
		style = terminal.Green
	}
	p.WriteString("\n")
	p.printLine(terminal.Bold+style, t.Template+": "+outcome)
	code := ""
	if t.Code != "" {
		code = fmt.Sprintf(" (%s)", t.Code)
	}
	p.printPair("because", "", t.Message+code)
	name := "also"
	for _, s := range t.Also {
		p.printPair(name, "", fmt.Sprintf("%s (%s)", s.Message, s.Code))
		name = ""
	}
	p.printPair("revision", "", t.Revision)
	if t.InjectedBy != "" && t.InjectedBy != t.Revision {
		p.printPair("injected by", "", "revision "+t.InjectedBy)
	}
	p.printDifferences(r, t)
	name = "parameters"
	for _, v := range t.Params {
		p.printPair(name, "", v.Name+" "+valueOf(v))
		name = ""
	}
	if !p.verbose {
		return
	}
	name = "passed rules"
	for _, s := range t.Passed {
		p.printPair(name, terminal.Dim, fmt.Sprintf("%s: %s", s.Code, s.Message))
		name = ""
	}
}

func valueOf(v params.Value) string {
	if v.Source == params.Unset {
		return "is not set"
	}
	return fmt.Sprintf("= %s (%s)", cmp.Or(v.Text, `""`), valueOrigin(v))
}

func valueOrigin(v params.Value) string {
	if v.Source == params.FromDefault {
		return "default"
	}
	return strings.TrimSpace("the " + v.Source + "'s annotation " + v.Annotation)
}

func (p *page) printDifferences(r *Report, t *Template) {
	name := "adds"
	switch {
	case t.Code == inject.CodeNotOptedIn:
		name = "would add"
	case r.Object.Live || t.Code == inject.CodeNotInjected:
		name = "lacks"
	}
	for _, d := range t.Added {
		p.printPair(name, "", fmt.Sprintf("%s: %s", schema.Where(d.Path), inject.Brief(d.Template)))
		name = ""
	}
	for i := range t.Kept {
		k := &t.Kept[i]
		own := problem.Cut(string(k.Template), maxShown)
		if k.Beside != "" {
			p.printPair("leaves out", "", fmt.Sprintf("%s: %s, because %s has %s", schema.Where(k.Path), own, k.Owner(), k.Beside))
			continue
		}
		p.printPair("keeps", "", fmt.Sprintf("%s: %s's %s, not %s", schema.Where(k.Path), k.Owner(), problem.Cut(string(k.Pod), maxShown), own))
	}
	obstacle := "place"
	if t.Code == inject.CodeConflict {
		obstacle = "conflict"
	}
	for _, o := range t.Obstacles {
		if o.Path != "" {
			p.printPair(obstacle, "", schema.Where(o.Path))
		}
	}
	for _, note := range t.Notes {
		p.printPair("note", "", note)
	}
}

func pathPhrase(pointer, sentence string) string {
	if pointer == "" || schema.Named(pointer, sentence) {
		return ""
	}
	return " at " + schema.Where(pointer)
}

func (p *page) printRunning(r *Running, kind string) {
	if r == nil || len(r.Behind) == 0 {
		return
	}
	for _, b := range r.Behind {
		verb := "are " + string(b.State)
		switch {
		case b.State == Missing && b.Pods == 1:
			verb = "does not have it"
		case b.State == Missing:
			verb = "do not have it"
		case b.Pods == 1:
			verb = "is " + string(b.State)
		}
		p.PrintRow("  ", 2, terminal.Yellow, fmt.Sprintf("%s: %d of %s %s, for example %s: %s", b.Template, b.Pods, Plural(r.Pods, "pod"), verb, b.Example, b.Why))
	}
	if r.plan != "" && r.InPlace > 0 {
		p.WriteString("  Pillion can update it without a restart. To see the plan:\n    " + r.plan + "\n")
	}
	switch {
	case r.Hold != "":
		p.PrintRow("  ", 2, terminal.Yellow, "a restart does not help: "+r.Hold)
	case len(r.Restart) > 1:
		fmt.Fprintf(p, "  A restart fixes %d workloads:\n    %s\n", len(r.Restart), strings.Join(r.restartAll, "\n      "))
	case len(r.Restart) == 1:
		p.WriteString("  A restart fixes it:\n    " + r.Restart[0] + "\n")
	case kind == "Job":
		p.PrintRow("  ", 2, terminal.Yellow, "to fix it, delete the Job and create it again")
	}
}
