// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
)

// The functions in this file expose a compiled template for translation into other languages. What they return is read-only, like
// the [Template].

// ConditionExpression returns spec.match.condition, or nil.
func (t *Template) ConditionExpression() *cel.Expression { return t.condition }

// PodFragment returns the partial Pod in spec.pod.
func (t *Template) PodFragment() fragment.View { return t.pod.View() }

// EachFragment is one entry of spec.forEachContainer.
type EachFragment struct {
	Where          *cel.Expression // nil for every app container
	InitContainers bool
	Add            fragment.View // a partial Container
}

// EachFragments returns the entries of spec.forEachContainer.
func (t *Template) EachFragments() []EachFragment {
	var all []EachFragment
	for _, f := range t.forEach {
		all = append(all, EachFragment{f.where, f.initContainers, f.add.View()})
	}
	return all
}

// UsedVariables returns the variables that some expression reads, in their order.
func (t *Template) UsedVariables() (all []*cel.Variable) {
	for _, v := range t.variables {
		if v.IsUsed() {
			all = append(all, v)
		}
	}
	return all
}

// UnusedVariables returns the names of the variables that no expression reads.
func (t *Template) UnusedVariables() (names []string) {
	for _, v := range t.variables {
		if !v.IsUsed() {
			names = append(names, v.Name())
		}
	}
	return names
}
