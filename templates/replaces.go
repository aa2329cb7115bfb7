// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// wholeShare is the share of a template that replaces another one everywhere.
const wholeShare = 100

// Share returns the percentage of workloads in which the template replaces another one.
func (t *Template) Share() int { return cmp.Or(t.Spec.Share, wholeShare) }

// checkReplaces checks what a template says about the one that it replaces. Whether that exists is a property of
// the set, see whyMisreplaced.
func (c *parser) checkReplaces(y *yaml.Node, t *Template) {
	spec := yamlnode.Child(y, "spec")
	replaces, share := yamlnode.Child(spec, "replaces"), yamlnode.Child(spec, "share")
	switch {
	case replaces == nil && share != nil:
		c.ReportProblem(share, "spec.share", "a share is for a template that replaces another one; set replaces, or leave share out")
	case replaces == nil, replaces.ShortTag() != "!!str": // is no string, which is reported already
	case !validation.IsLabel(t.Spec.Replaces):
		c.ReportProblem(replaces, "spec.replaces", "must be the name of a template: at most 63 of a-z, 0-9 and -")
	case t.Spec.Replaces == t.Name:
		c.ReportProblem(replaces, "spec.replaces", "a template cannot replace itself; name another one, or leave replaces out")
	}
	if share != nil && share.ShortTag() == "!!int" && (t.Spec.Share < 1 || t.Spec.Share > wholeShare) {
		c.ReportProblem(share, "spec.share", "must be 1 to %d, the percentage of workloads", wholeShare)
	}
	t.replacesLine = yamlnode.At(y, "spec", "replaces").Line
}

// usableTemplates returns the templates that can be used together, and the problems of the others.
func usableTemplates(all []*Template) (kept []*Template, problems problem.Problems) {
	distinct, problems := distinctTemplates(all)
	for _, t := range distinct {
		message, _ := whyMisreplaced(t, distinct)
		if message == "" {
			kept = append(kept, t)
			continue
		}
		p := problem.Problem{File: t.File, Template: t.Name, Path: "spec.replaces", Message: message}
		if t.line > 0 { // not an object
			p.Line = t.replacesLine
		}
		problems = append(problems, p)
	}
	return kept, problems
}

// Misreplaced returns what is wrong with spec.replaces of a template in a set, or "". The set may have an
// older template of that name. Passing reports whether other templates, which may be about to change, are the reason.
func (s *Set) Misreplaced(t *Template) (message string, passing bool) {
	others := slices.DeleteFunc(slices.Clone(s.Templates), func(other *Template) bool { return other.ID() == t.ID() })
	return whyMisreplaced(t, append(others, t))
}

// whyMisreplaced returns what is wrong with spec.replaces of one of the templates, or "". Without these rules, a
// tenant could displace a template of the cluster, and a pod could lose a required template.
func whyMisreplaced(t *Template, all []*Template) (message string, passing bool) {
	name := t.Spec.Replaces
	if name == "" {
		return "", false
	}
	find := func(namespace string) *Template {
		for _, other := range all {
			if other.Name == name && other.Namespace == namespace {
				return other
			}
		}
		return nil
	}
	switch of := find(t.Namespace); {
	case of == nil && t.Namespace != "" && find("") != nil:
		return fmt.Sprintf("%s is a %s; a %s can replace only one of its own namespace", name, v1alpha1.ClusterKind, v1alpha1.NamespacedKind), false
	case of == nil:
		return fmt.Sprintf("there is no template %s to replace%s", name, problem.DidYouMean(name, namesIn(all, t))), true
	case of.Spec.Replaces != "":
		return fmt.Sprintf("%s itself replaces %s; replace that one", name, of.Spec.Replaces), false
	case of.Spec.Required && !t.Spec.Required:
		return fmt.Sprintf("%s is required, so this template must be required too; set required: true", name), true
	case !of.Spec.Required && t.Spec.Required:
		return fmt.Sprintf("%s is not required, so this template must not be required either; leave required out, or make %[1]s required", name), true
	}
	return "", false
}

// Excludes reports whether no pod gets both templates, because one replaces the other, or both the same one.
func (t *Template) Excludes(other *Template) bool {
	of := func(t *Template) string { return cmp.Or(t.Spec.Replaces, t.Name) }
	return t != other && t.Namespace == other.Namespace && of(t) == of(other)
}

// namesIn returns the names of the templates that another one could replace.
func namesIn(all []*Template, by *Template) (names []string) {
	for _, t := range all {
		if t.Namespace == by.Namespace && t != by {
			names = append(names, t.Name)
		}
	}
	return names
}
