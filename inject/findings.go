// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Check returns the findings about a final pod. The result must come from a run over that pod, as
// [Judge.Judge] makes it. The pod is correct if another injection would add nothing, and if its
// protected fields have the templates' values. Other differences are up to users and other
// webhooks. Findings that deny come first.
func (r *Result) Check() []Finding { return r.checkFinalPod(false) }

// checkFinalPod implements [Result.Check]. If strict is true, a template of which nothing is in the pod denies the pod whatever its
// mode is: the mutating webhook would have added it, and was not called.
func (r *Result) checkFinalPod(strict bool) []Finding {
	var all []Finding
	wanted := map[string]v1alpha1.ValidateMode{}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		failures := d.failureFindings()
		all = append(all, failures...)
		if d.Code.Succeeded() {
			all = append(all, d.differenceFindings(strict)...)
		} else if len(failures) == 0 {
			continue
		}
		wanted[d.Template] = d.Mode
	}
	for _, f := range r.Findings {
		f.Mode = v1alpha1.Warn
		if mode := wanted[f.Template]; mode != "" && f.Path != "" {
			f.Mode = mode // a mistake of the pod in a template that it gets
		}
		all = append(all, f)
	}
	for i := range all {
		all[i].Message = cleanMessage(all[i].Message)
	}
	sortFindings(all)
	return all
}

func sortFindings(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int { return modeRank(a.Mode) - modeRank(b.Mode) })
}

func modeRank(m v1alpha1.ValidateMode) int {
	if m == v1alpha1.Deny {
		return 0
	}
	return 1
}

// findFaults returns the findings about one template. There are none if the template is not for the pod.
func (d *Decision) findFaults() []Finding {
	if d.Code == CodePresent || d.Code == CodeInjected {
		return d.differenceFindings(false)
	}
	return d.failureFindings()
}

// differenceFindings returns the findings about missing and altered parts of a template that is present or injected. Strict is that
// of checkFinalPod.
func (d *Decision) differenceFindings(strict bool) []Finding {
	if d.Absent {
		return []Finding{d.absentFinding(strict)}
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
			message = Brief(p.Pod) + " must be removed"
		case p.Pod == "null":
			message = Brief(p.Template) + " is missing"
		}
		all = append(all, d.newFinding(CodeAltered, p, message+d.differenceAdvice(d.changeAdvice(p.Path))))
	}
	for _, p := range d.Added {
		all = append(all, d.newFinding(CodeMissing, p, Brief(p.Template)+" is missing"+d.differenceAdvice("find out which other webhook removes it")))
	}
	return all
}

// changeAdvice returns the end of a sentence about a protected field that differs: where to search for the cause.
func (d *Decision) changeAdvice(at string) string {
	names := strings.Split(at, "/") // "", spec, containers, 0, args
	if len(names) > 4 && slices.Contains(d.computed, names[4]) {
		return "the template protects it and computes it from the pod, so find out what changes the pod; in a copy, keep the labels too (kubectl debug --profile=general --keep-labels)"
	}
	return "the template protects it, so find out what changes it"
}

// absentFinding returns the finding about a template of which nothing is in the pod.
func (d *Decision) absentFinding(strict bool) Finding {
	lacks := d.firstMissing()
	f := Finding{Code: CodeNotInjected, Template: d.Template, Path: lacks.Path, Expected: lacks.Template, Mode: d.Mode}
	f.Message = "the pod has nothing of it: the mutating webhook was not called or did not answer in time; create the pod again"
	if d.recorded {
		f.Message = "the pod has only the record of its injection: the pod is a copy, or another webhook removed the rest, and the mutating webhook was not called or did not answer in time; create the pod again"
	}
	if strict {
		f.Mode = v1alpha1.Deny
	}
	return f
}

// differenceAdvice returns the end of a sentence about a difference: the given advice, unless another revision of the template
// injected the pod. Then differences are expected, and the advice is to create the pod again.
func (d *Decision) differenceAdvice(others string) string {
	if d.recordedRevision == "" {
		return "; " + others
	}
	const most = 20 // any client may have written the annotation, of any length
	by := []rune(strings.Trim(d.recordedRevision, `"`))
	if len(by) > most {
		by = append(by[:most], '…')
	}
	return fmt.Sprintf("; the pod names revision %s, which injected it: create it again, from a manifest that was not injected", string(by))
}

// failureFindings returns findings about a template that the pod should have but that could not be
// injected. They have the code of the decision.
func (d *Decision) failureFindings() []Finding {
	if !d.Code.Failed() {
		return nil
	}
	var all []Finding
	for _, o := range d.Obstacles {
		all = append(all, d.newFinding(d.Code, o.Difference, o.Message))
	}
	if all == nil {
		all = append(all, d.newFinding(d.Code, Difference{}, d.Sentence()))
	}
	return all
}

func (d *Decision) newFinding(code Code, p Difference, message string) Finding {
	return Finding{
		Code: code, Template: d.Template, Path: p.Path, Expected: emptyIfNull(p.Template), Found: emptyIfNull(p.Pod),
		Message: message, Mode: d.Mode,
	}
}

func emptyIfNull(of JSON) JSON {
	if of == "null" {
		return ""
	}
	return of
}

// firstMissing returns the first missing container, or the first missing part if no container is missing.
func (d *Decision) firstMissing() Difference {
	for _, p := range d.Added {
		if list := path.Dir(p.Path); list == "/spec/initContainers" || list == "/spec/containers" {
			return p
		}
	}
	if len(d.Added) > 0 {
		return d.Added[0] // the template has no containers
	}
	return Difference{Path: "/spec/containers"}
}

// maxDenial is the maximum length of a denial's message, in bytes. An event has room for 1,024, and
// the message starts with "Error creating: admission webhook ... denied the request: ".
const maxDenial = 900

// Denial joins findings into one message, as many as fit.
func Denial(all []Finding) string {
	if len(all) == 1 {
		return problem.Cut(all[0].String(), maxDenial)
	}
	message := fmt.Sprintf("%d findings:", len(all))
	for i := range all {
		rest := fmt.Sprintf("; and %d more", len(all)-i)
		next := fmt.Sprintf(" (%d) %s", i+1, problem.Cut(all[i].String(), maxDenial/2))
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

// Warnings returns the warnings for the client that sent the pod, in a stable order. It omits
// routine decisions, such as a template that the pod did not request. A final pod that is allowed
// has the same warnings, and an API server shows each warning once.
func (r *Result) Warnings() []string {
	var all []string
	for i := range r.Findings {
		all = append(all, r.Findings[i].String())
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		for _, f := range d.failureFindings() {
			all = append(all, f.String())
		}
		if d.Unmet() && !d.Code.Failed() {
			all = append(all, fmt.Sprintf("%s: %s: %s", d.Template, d.Code, d.UnmetSentence()))
		}
		for _, note := range d.Notes {
			all = append(all, d.Template+": "+note)
		}
	}
	return all
}
