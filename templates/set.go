// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Set is a complete set of templates in the order in which they are applied: those of the cluster come
// first, so that a template of a namespace never changes what they add. It is immutable.
type Set struct {
	Templates []*Template
	Revision  string // of all templates together, 12 hex digits

	forOne bool // see For
}

// NewSet returns a set of the templates. They must be sorted and have different names.
func NewSet(all []*Template) *Set {
	sum := sha256.New()
	for _, t := range all {
		fmt.Fprintln(sum, t.ID(), t.Revision)
		if t.Spec.Replaces != "" {
			fmt.Fprintln(sum, t.Spec.Replaces, t.Share())
		}
	}
	return &Set{Templates: all, Revision: hex.EncodeToString(sum.Sum(nil))[:12]}
}

// Join combines sets. If templates have the same name, the set contains the first one, and the
// others are problems. So are templates that cannot replace what they name, see [Template.Spec].
func Join(sets ...*Set) (*Set, problem.Problems) {
	var all []*Template
	for _, s := range sets {
		all = append(all, s.Templates...)
	}
	all, problems := usableTemplates(all)
	inOrder(all)
	return NewSet(all), problems
}

func inOrder(all []*Template) {
	slices.SortStableFunc(all, func(a, b *Template) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Spec.Order, b.Spec.Order), strings.Compare(a.Name, b.Name))
	})
}

// distinctTemplates keeps the first template of each name in a namespace, and no template of a namespace that
// has the name of one of the cluster.
func distinctTemplates(all []*Template) (kept []*Template, problems problem.Problems) {
	first := map[string]*Template{} // by ID
	for _, t := range all {
		if first[t.ID()] == nil {
			first[t.ID()] = t
		}
	}
	for _, t := range all {
		message := ""
		if other := first[t.ID()]; other != t {
			message = fmt.Sprintf("the template %s is also in %s", t.Name, other.Place())
		} else if other := first[t.Name]; other != t && other != nil {
			message = fmt.Sprintf("the %s of this name takes precedence (%s); use another name", v1alpha1.ClusterKind, other.Place())
		}
		if message == "" {
			kept = append(kept, t)
			continue
		}
		problems = append(problems, problem.Problem{File: t.File, Line: t.line, Path: "metadata.name", Message: message})
	}
	return kept, problems
}

// For returns the set for the pods of a namespace: the templates of the cluster, and those of the
// namespace.
func (s *Set) For(namespace string) *Set {
	of := s.OfCluster()
	if own := s.inNamespace(namespace); namespace != "" && len(own) > 0 {
		of = NewSet(slices.Concat(of.Templates, own))
	}
	return &Set{Templates: of.Templates, Revision: of.Revision, forOne: true}
}

// OfCluster returns the set for the pods of a namespace without templates of its own.
func (s *Set) OfCluster() *Set {
	own := s.inNamespace("")
	if len(own) == len(s.Templates) {
		return s
	}
	return NewSet(own)
}

// inNamespace returns the templates of a namespace, or, for "", of the cluster.
func (s *Set) inNamespace(namespace string) []*Template {
	compare := func(t *Template, namespace string) int { return strings.Compare(t.Namespace, namespace) }
	begin, _ := slices.BinarySearchFunc(s.Templates, namespace, compare)
	end, _ := slices.BinarySearchFunc(s.Templates, namespace+"\x00", compare)
	return slices.Clip(s.Templates[begin:end])
}

// Namespaces returns the namespaces that have templates of their own, sorted. It returns none if the
// set is for the pods of one namespace.
func (s *Set) Namespaces() (names []string) {
	if s.forOne {
		return nil
	}
	for _, t := range s.Templates {
		if t.Namespace != "" && !slices.Contains(names[max(0, len(names)-1):], t.Namespace) {
			names = append(names, t.Namespace) // the templates are sorted by namespace
		}
	}
	return names
}

// ReadsServiceAccount reports whether one of the templates does.
func (s *Set) ReadsServiceAccount() bool {
	for _, t := range s.Templates {
		if t.ReadsServiceAccount() {
			return true
		}
	}
	return false
}
