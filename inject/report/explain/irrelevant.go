// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Only removes all other templates than the named ones from the report. Without names, it removes nothing. It returns an error if there
// is no template with a name.
func (r *Report) Only(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var known []string
	for i := range r.Templates {
		known = append(known, r.Templates[i].Template)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no template %q%s", name, problem.DidYouMean(name, known))
		}
	}
	r.Templates = slices.DeleteFunc(r.Templates, func(t Template) bool { return !slices.Contains(names, t.Template) })
	r.Running.keepTemplates(names)
	r.only = true
	return nil
}

// isIrrelevant reports whether a template is irrelevant to the pod: it does not apply and the pod
// does not request it, or the pod can get no template at all.
func (r *Report) isIrrelevant(t *Template) bool {
	switch {
	case r.only || len(t.Added) > 0 || r.Object.Live && t.State != NotWanted:
		return false
	case t.Code == inject.CodeNotOptedIn && len(t.Also) > 0:
		// An opt-in alone does not help. If the pod requests others instead of the defaults, its author knows that.
		return !t.Requested && (!t.isDefault || r.OptInCommand != "" && t.Also[0].Code == inject.CodeNotRequested)
	case t.Code.AboutPod():
		return true
	case t.Code == inject.CodeReplaced, t.Code == inject.CodeHasReplaced, t.Code == inject.CodeFellBack, t.Code == inject.CodeNotInShare:
		return false // which of several templates the pod gets is not obvious
	case t.isDefault && t.Code == inject.CodeNotRequested && !t.Requested:
		// Authors who name a template rarely want to lose the defaults. Authors who write an empty list want that.
		return !slices.ContainsFunc(r.Templates, func(named Template) bool { return named.Requested })
	case !r.getsTemplate() && slices.ContainsFunc(t.Passed, func(s inject.Step) bool { return s.Code == inject.CodeNotRequested }):
		return false // the pod gets nothing, not even this default
	}
	return !t.Requested && !t.Code.Failed() && !t.Code.Succeeded() && t.Code != inject.CodeNotInjected && t.Code != ""
}

// getsTemplate reports whether the pod gets or has any template.
func (r *Report) getsTemplate() bool {
	return slices.ContainsFunc(r.Templates, func(t Template) bool { return t.Code.Succeeded() || t.State == Current })
}

// printOthers prints one line about templates that do not apply, with the reason code of each, or the
// whole reason if all have the same.
func (p *page) printOthers(all []*Template, applied bool) {
	if len(all) == 0 {
		return
	}
	what := "template"
	if applied {
		what = "other template"
	}
	verb := "do"
	if len(all) == 1 {
		verb = "does"
	}
	p.WriteString("\n")
	head := fmt.Sprintf("%s %s not apply", Plural(len(all), what), verb)
	if t := all[0]; !slices.ContainsFunc(all, func(o *Template) bool { return o.Code != t.Code || o.Message != t.Message }) {
		p.printLine("", fmt.Sprintf("%s (%s: %s): %s", head, t.Code, t.Message, someNames(all)))
		return
	}
	by := map[inject.Code][]*Template{}
	var codes []inject.Code
	for _, t := range all {
		if by[t.Code] == nil {
			codes = append(codes, t.Code)
		}
		by[t.Code] = append(by[t.Code], t)
	}
	var parts []string
	for _, c := range codes {
		parts = append(parts, fmt.Sprintf("%d %s (%s)", len(by[c]), c, someNames(by[c])))
	}
	p.printLine("", fmt.Sprintf("%s: %s; --all shows why", head, strings.Join(parts, ", ")))
}

// someNames returns as many names of templates as fit into half a line.
func someNames(all []*Template) string {
	var names []string
	for _, t := range all {
		names = append(names, t.Template)
	}
	return joinNames(names, 50)
}
