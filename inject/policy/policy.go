// SPDX-License-Identifier: Apache-2.0

// Package policy writes templates as admission policies of Kubernetes, which the API server
// evaluates without calling a webhook: [Validating] checks the final pod, [Mutating] injects.
//
// If a template cannot be expressed, it is rejected with the reasons, never approximated. If a
// policy cannot decide as exactly as the engine whether to inject into a pod, it leaves the pod
// unchanged.
//
// The engine's planner works on values. A policy needs expressions instead, because the pod exists
// only later, in the API server. One walk over the fragment (merge.go) writes additions and
// conflicts by the engine's schema. The conditions for values come from the rules of the templates.
// The positions in additions.go and the checks in conditions.go duplicate code of the engine, because CEL
// cannot call Go. TestEngine compares the results.
package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// Options select templates and namespaces.
type Options struct {
	// Templates are the names of those to express; none is all. The others still
	// count: which containers are a template's depends on all of them.
	Templates []string
	// Excluded are namespaces without injection, besides the system's.
	Excluded []string
}

func (o *Options) selectsTemplate(t *templates.Template) bool {
	return len(o.Templates) == 0 || slices.Contains(o.Templates, t.Name)
}

// Validating returns a ValidatingAdmissionPolicy with its bindings for each required template. It skips the other
// templates. The error is [Problems].
func Validating(set *templates.Set, o Options) ([]runtime.Object, error) {
	return o.expressTemplates(set, func(b *builder) []runtime.Object {
		if !b.t.Spec.Required {
			return nil
		}
		b.reportReplacement()
		return b.validatingObjects()
	})
}

// Mutating returns a MutatingAdmissionPolicy with its bindings for each template. The error is [Problems].
func Mutating(set *templates.Set, o Options) ([]runtime.Object, error) {
	return o.expressTemplates(set, func(b *builder) []runtime.Object {
		b.reportReplacement()
		m := newMutation(b)
		objects := m.mutatingObjects()
		m.reportCollisions()
		return objects
	})
}

func (o *Options) expressTemplates(set *templates.Set, express func(*builder) []runtime.Object) ([]runtime.Object, error) {
	var all []runtime.Object
	var problems Problems
	for _, t := range set.Templates {
		if !o.selectsTemplate(t) {
			continue
		}
		b := &builder{set: set, t: t, excluded: append(inject.SystemNamespaces(), o.Excluded...)}
		all = append(all, express(b)...)
		problems = append(problems, b.problems...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return all, nil
}

// Notes returns one sentence for each mutating policy whose expressions may see something different
// than in the webhook, because that policy or another one adds to a part of the pod that they read.
func Notes(set *templates.Set, o Options) []string {
	var notes []string
	for _, t := range set.Templates {
		for _, other := range set.Templates {
			parts := slices.DeleteFunc(addedParts(set, other), func(part string) bool {
				return !slices.ContainsFunc(t.Reads(), func(read string) bool { return read == "*" || strings.Split(read, "[")[0] == part })
			})
			format := "template %s: note: its expressions may or may not see what the policy of %s adds to %s, because the API server runs policies in any order"
			if t == other {
				format = "template %s: note: the policy of %s adds to %s, which its expressions read: if that changes a protected field, the webhook skips the template, but a policy adds it"
			}
			if o.selectsTemplate(t) && t.Namespace == "" && other.Namespace != "" && len(other.Containers) > 0 && (t.ReadsContainers() || t.HasForEach()) {
				notes = append(notes, fmt.Sprintf("template %s: note: it may or may not see the containers that the policy of the namespace's template %s adds, because the API server runs policies in any order", t.Name, other.Name))
			}
			if o.selectsTemplate(t) && len(parts) > 0 {
				notes = append(notes, fmt.Sprintf(format, t.Name, other.Name, strings.Join(parts, " and ")))
			}
		}
	}
	return notes
}
