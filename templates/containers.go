// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"

	"github.com/pillion-dev/pillion/templates/fragment"
)

// Brings reports whether the template brings containers with that name.
func (t *Template) Brings(name string) bool {
	if !t.generates {
		return slices.Contains(t.Containers, name)
	}
	return slices.ContainsFunc(t.Containers, func(own string) bool { return fragment.IsNamed(own, name) })
}

// Rank returns the position of the template's containers with that name in a list of a pod,
// initContainers or containers, or -1. Those of one ${forEach} have the same.
func (t *Template) Rank(list, name string) int {
	if !t.generates {
		return slices.Index(t.order[list], name)
	}
	return slices.IndexFunc(t.order[list], func(own string) bool { return fragment.IsNamed(own, name) })
}

// Runs returns the Runs of each of the template's containers.
func (t *Template) Runs() []fragment.Runs {
	return fragment.RunsOf(t.pod)
}

// AsksIfSet reports whether fragments of [Template.ForEach] contain IfSetKey.
func (t *Template) AsksIfSet() bool { return t.asksIfSet }

// eachOnce returns the names of lists, each once.
func eachOnce(lists ...[]string) (names []string) {
	for _, name := range slices.Concat(lists...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
