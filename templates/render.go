// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Condition reports whether the template's condition is true. Without a condition it returns true.
// It returns an error if the condition reads a parameter that has no value, even if evaluation
// would not use it: a policy cannot distinguish these cases ([Expression.Params]).
func (t *Template) Condition(in *Input, values Values) (bool, error) {
	if t.condition == nil {
		return true, nil
	}
	for _, name := range t.condition.params {
		if !values.has(name) {
			return false, fmt.Errorf("spec.match.condition: it reads the parameter %s, which has no valid value", name)
		}
	}
	ok, err := t.condition.evalBool(in.with(values, nil))
	if err != nil {
		return false, fmt.Errorf("spec.match.condition: %w", err)
	}
	return ok, nil
}

// Render returns the fragment for one pod: a partial Pod. The fragment may share memory with the
// template, so callers must not change it.
func (t *Template) Render(in *Input, values Values) (tree.Node, error) {
	in.given = t.given(values)
	var n tree.Node
	_, err := t.pod.render(in.with(values, nil), &n)
	return n, err
}

// ForEach returns what to add to one app container: partial Containers in the order of the
// template. Callers must not change them.
func (t *Template) ForEach(in *Input, values Values, container *tree.Node, initContainer bool) ([]tree.Node, error) {
	all := in.Nodes.Nodes(len(t.forEach))
	in.with(values, container).given = t.given(values)
	for i := range t.forEach {
		f := &t.forEach[i]
		if initContainer && !f.initContainers {
			continue
		}
		if f.where != nil {
			ok, err := f.where.evalBool(in)
			if err != nil {
				return nil, fmt.Errorf("spec.forEachContainer[%d].where: %w", i, err)
			}
			if !ok {
				continue
			}
			in.matched |= 1 << i
		}
		all = append(all, tree.Node{})
		if _, err := f.add.render(in, &all[len(all)-1]); err != nil {
			return nil, fmt.Errorf("container %s: %w", shortened(container.Get("name").Text()), err)
		}
	}
	return all, nil
}

// HasForEach reports whether the template adds anything to app containers.
func (t *Template) HasForEach() bool { return len(t.forEach) > 0 }
