// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// Check judges a final pod by the result of a run over it ([Judge.Judge] makes
// one): it is right when injecting it again would add nothing, and
// what its templates protect is as they say. What else differs is the user's
// or another webhook's own business. Findings that deny come first.
func (r *Result) Check() []Finding { return r.check(false) }

// check is Check. If strict is true, a template of which nothing is in the pod,
// because the mutating webhook did not add it, denies the pod in every mode.
func (r *Result) check(strict bool) []Finding {
	var all []Finding
	wanted := map[string]templates.ValidateMode{}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		failures := d.failures()
		all = append(all, failures...)
		if d.Code.Succeeded() {
			all = append(all, d.differences(strict)...)
		} else if len(failures) == 0 {
			continue
		}
		wanted[d.Template] = d.Mode
	}
	for _, f := range r.Findings {
		f.Mode = templates.Warn
		if mode := wanted[f.Template]; mode != "" && f.Path != "" {
			f.Mode = mode // the pod's own mistake in a template that it gets
		}
		all = append(all, f)
	}
	sortFindings(all)
	return all
}

func sortFindings(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int { return rank(a.Mode) - rank(b.Mode) })
}

func rank(m templates.ValidateMode) int {
	if m == templates.Deny {
		return 0
	}
	return 1
}

// faults are what is wrong with a template that the pod should have.
func (d *Decision) faults() []Finding {
	if d.Code == CodePresent || d.Code == CodeInjected {
		return d.differences(false)
	}
	return d.failures()
}

// differences are what is missing and what is altered.
func (d *Decision) differences(strict bool) []Finding {
	if d.Absent {
		return []Finding{d.notThere(strict)}
	}
	missing := map[string]bool{}
	for _, p := range d.Added {
		missing[p.Path] = true
	}
	var all []Finding
	for _, p := range d.Altered {
		if missing[p.Path] {
			continue
		}
		message := fmt.Sprintf("it is %s and must be %s", Brief(p.Pod), Brief(p.Template))
		switch {
		case p.Template == "null":
			message = Brief(p.Pod) + " must not be there"
		case p.Pod == "null":
			message = Brief(p.Template) + " is not there"
		}
		all = append(all, d.finding(CodeAltered, p, message+d.blame(d.changer(p.Path))))
	}
	for _, p := range d.Added {
		all = append(all, d.finding(CodeMissing, p, Brief(p.Template)+" is not there"+d.blame("see which other webhook takes it away")))
	}
	return all
}

// changer is the end of a sentence about a protected place: what may have changed it.
func (d *Decision) changer(at string) string {
	names := strings.Split(at, "/") // "", spec, containers, 0, args
	if len(names) > 4 && slices.Contains(d.computed, names[4]) {
		return "the template protects it and computes it from the pod, so see who changes the pod; in a copy, keep the labels too (kubectl debug --keep-labels)"
	}
	return "the template protects it, so see who changes it"
}

// notThere is the finding about a template of which nothing is in the pod.
func (d *Decision) notThere(strict bool) Finding {
	f := Finding{Code: CodeNotInjected, Template: d.Template, Path: d.containerPath(), Expected: d.container(), Mode: d.Mode}
	f.Message = "nothing of it is in the pod: the mutating webhook was not called or did not answer in time; create the pod again"
	if d.recorded {
		f.Message = "nothing of it is in the pod but the record of its injection: it is a copy, or another webhook removed the rest, and the mutating webhook was not called or did not answer in time; create the pod again"
	}
	if strict {
		f.Mode = templates.Deny
	}
	return f
}

// blame is the end of a sentence about what is not as the template says. Of a pod that another
// revision injected that is no wonder; once it is made anew, what others do to it shows.
func (d *Decision) blame(others string) string {
	if d.other == "" {
		return "; " + others
	}
	const most = 20 // of what anybody may have written
	by := []rune(strings.Trim(d.other, `"`))
	if len(by) > most {
		by = append(by[:most], '…')
	}
	return fmt.Sprintf("; the pod says that it was injected by revision %s: create it again, from a manifest that was not injected", string(by))
}

// failures say why a template that the pod should have got could not be injected.
func (d *Decision) failures() []Finding {
	code := CodeNotInjected
	switch d.Code {
	case CodeInvalidParameter:
		code = CodeInvalidParameter
	case CodeConflict, CodeRenderFailed:
	default:
		return nil
	}
	var all []Finding
	for _, o := range d.Obstacles {
		all = append(all, d.finding(code, o.Place, o.Message))
	}
	if all == nil {
		all = append(all, d.finding(code, Place{}, d.Sentence()))
	}
	return all
}

func (d *Decision) finding(code Code, p Place, message string) Finding {
	return Finding{
		Code: code, Template: d.Template, Path: p.Path, Expected: value(p.Template), Found: value(p.Pod),
		Message: message, Mode: d.Mode,
	}
}

func value(text string) string {
	if text == "null" {
		return ""
	}
	return text
}

// containerPath is where the first container that is not there belongs, or else the
// first thing that is not there.
func (d *Decision) containerPath() string {
	for _, p := range d.Added {
		if list := path.Dir(p.Path); list == "/spec/initContainers" || list == "/spec/containers" {
			return p.Path
		}
	}
	if len(d.Added) > 0 {
		return d.Added[0].Path // the template brings no containers
	}
	return "/spec/containers"
}

func (d *Decision) container() string {
	at := d.containerPath()
	for _, p := range d.Added {
		if p.Path == at {
			return p.Template
		}
	}
	return ""
}

// maxDenial bounds a denial's message, in bytes: an event has room for 1,024, and
// "Error creating: admission webhook ... denied the request: " stands before it.
const maxDenial = 900

// Denial puts findings into one message, as many as fit.
func Denial(all []Finding) string {
	if len(all) == 1 {
		return Cut(all[0].String(), maxDenial)
	}
	message := fmt.Sprintf("%d findings:", len(all))
	for i := range all {
		rest := fmt.Sprintf("; and %d more", len(all)-i)
		next := fmt.Sprintf(" (%d) %s", i+1, Cut(all[i].String(), maxDenial/2))
		if i > 0 {
			next = ";" + next
		}
		if len(message)+len(next)+len(rest) > maxDenial {
			return message + rest
		}
		message += next
	}
	return message
}

// Warnings are the sentences for whoever sent the pod, in a stable order. What
// is routine (a template that nobody asked for) is no warning. A final pod that
// is let through has the same, and an API server shows the same text once.
func (r *Result) Warnings() []string {
	var all []string
	for i := range r.Findings {
		all = append(all, r.Findings[i].String())
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		for _, f := range d.failures() {
			all = append(all, f.String())
		}
		for _, note := range d.Notes {
			all = append(all, d.Template+": "+note)
		}
	}
	return all
}
