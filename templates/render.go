// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Condition reports whether the template's condition is true. Without a condition it returns true.
// It returns an error if the condition reads a parameter that has no value, even if evaluation
// would not use it: a policy cannot distinguish these cases ([cel.Expression.Params]).
func (t *Template) Condition(in *cel.Input, values params.Values) (bool, error) {
	if t.condition == nil {
		return true, nil
	}
	for _, name := range t.condition.Params() {
		if !values.IsValid(name) {
			return false, fmt.Errorf("spec.match.condition: it reads the parameter %s, which has no valid value", name)
		}
	}
	ok, err := t.condition.EvalBool(in.WithValues(values, nil))
	if err != nil {
		return false, t.blameAnnotations(t.condition.Fault("spec.match.condition", err), values)
	}
	return ok, nil
}

// Render returns the fragment for one pod: a partial Pod. The fragment may share memory with the
// template, so callers must not change it.
func (t *Template) Render(in *cel.Input, values params.Values) (jsontree.Node, error) {
	var n jsontree.Node
	_, err := t.pod.RenderInto(in.WithValues(values, nil).WithGiven(t.params.Given(values)), &n)
	return n, t.blameAnnotations(err, values)
}

// ForEach returns what to add to one app container: partial Containers in the order of the
// template. Callers must not change them.
func (t *Template) ForEach(in *cel.Input, values params.Values, container *jsontree.Node, initContainer bool) ([]jsontree.Node, error) {
	all := in.Nodes.Nodes(len(t.forEach))
	in.WithValues(values, container).WithGiven(t.params.Given(values))
	for i := range t.forEach {
		f := &t.forEach[i]
		if initContainer && !f.initContainers {
			continue
		}
		if f.where != nil {
			ok, err := f.where.EvalBool(in)
			if err != nil {
				return nil, t.blameAnnotations(f.where.Fault(fmt.Sprintf("spec.forEachContainer[%d].where", i), err), values)
			}
			if !ok {
				continue
			}
			in.NoteMatch(i)
		}
		all = append(all, jsontree.Node{})
		if _, err := f.add.RenderInto(in, &all[len(all)-1]); err != nil {
			return nil, fmt.Errorf("container %s: %w", problem.Shorten(container.Get("name").Text()), t.blameAnnotations(err, values))
		}
	}
	return all, nil
}

// Placement returns where the template's containers go in one pod. It returns an error if an
// expression fails, or if its value is no [v1alpha1.End].
func (t *Template) Placement(in *cel.Input, values params.Values) (v1alpha1.Placement, error) {
	placement := t.Spec.Placement
	for i, positions := range []*v1alpha1.Positions{&placement.InitContainers, &placement.Containers} {
		program := t.ends[i]
		if program == nil {
			continue
		}
		text, err := program.EvalString(in.WithValues(values, nil))
		end := v1alpha1.End(text)
		if err == nil && end != v1alpha1.First && end != v1alpha1.Last {
			err = fmt.Errorf("%q gives %q, but First or Last is needed here", program.Source(), text)
		}
		if err != nil {
			return placement, t.blameAnnotations(program.Fault("spec.placement."+fragment.ContainerLists[i], err), values)
		}
		*positions = slices.Clone(*positions)
		(*positions)[len(*positions)-1].End = end
	}
	return placement, nil
}

// HasForEach reports whether the template adds anything to app containers.
func (t *Template) HasForEach() bool { return len(t.forEach) > 0 }

// blameAnnotations adds to an error the annotations that set what the failing part reads. Fixing them is up to
// the author of the pod, who may not be able to change the template.
func (t *Template) blameAnnotations(err error, values params.Values) error {
	f, ok := errors.AsType[*cel.FaultError](err)
	if !ok {
		return err
	}
	if t.line == 0 {
		f.ForgetLine()
	}
	var set []string
	for i := range values {
		v := &values[i]
		if v.Source != params.FromDefault && v.Source != params.Unset && slices.Contains(f.Params(), v.Name) {
			set = append(set, fmt.Sprintf("params.%s is set by the %s's annotation %s", v.Name, v.Source, cmp.Or(v.Annotation, t.params.KeyOf(v.Name))))
		}
	}
	if len(set) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(set, ", "))
}

// Unmet returns the first part of the template's condition that is false for a pod. It returns "" if the
// condition has only one part.
func (t *Template) Unmet(in *cel.Input, values params.Values) string {
	if t.condition == nil {
		return ""
	}
	return t.condition.FirstFalse(in.WithValues(values, nil))
}

// renderPresets renders the parts that are the same for all pods that set no parameter.
func (t *Template) renderPresets() {
	defaults := t.params.Defaults()
	in := new(cel.Input).WithValues(defaults, nil).WithGiven(t.params.Given(defaults))
	t.pod.RenderPresets(in)
	for i := range t.forEach {
		t.forEach[i].add.RenderPresets(in)
	}
}
