// SPDX-License-Identifier: Apache-2.0

package params

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Set has the compiled parameters of a template, in the order of their declaration. It is immutable.
type Set struct {
	all              []*Param
	named            map[string]*Param
	defaults         Values
	complete         bool // no parameter needs a value
	byServiceAccount bool // annotations of the ServiceAccount may set a parameter
}

// NewSet returns the set of a template's parameters, which have different names.
func NewSet(all []*Param) *Set {
	s := &Set{all: all, named: map[string]*Param{}, complete: true}
	for _, p := range all {
		s.named[p.Name] = p
		s.defaults = append(s.defaults, p.preset)
		s.complete = s.complete && !p.Needed()
		s.byServiceAccount = s.byServiceAccount || p.Overridable(v1alpha1.ByServiceAccount)
	}
	return s
}

// Defaults returns the values of the parameters for a pod that sets none. A parameter without a default is unset.
// Callers must not change them.
func (s *Set) Defaults() Values { return s.defaults }

// SetByServiceAccount reports whether annotations of the ServiceAccount may set one of the parameters.
func (s *Set) SetByServiceAccount() bool { return s.byServiceAccount }

// Find returns the values of the parameters. A value comes from the pod's annotations, or else
// from the ServiceAccount's, or else from the namespace's, or else it is the default. The parameter
// annotations is the pod's, or nil if none of them can set a parameter. The ServiceAccount may be
// nil. Parameters without a valid value are left out; the error is an [InvalidValuesError] about
// them. Callers must not change the values.
func (s *Set) Find(annotations *jsontree.Node, account *request.ServiceAccount, ns *request.Namespace) (found Values, err error) {
	if !s.byServiceAccount {
		account = nil // the result must not depend on what other templates read
	}
	switch {
	case len(s.all) == 0:
		return nil, nil
	case annotations == nil && account == nil && len(ns.Annotations) == 0 && s.complete:
		return s.defaults, nil
	}
	found = make(Values, 0, len(s.all))
	var invalid InvalidValuesError
	for _, p := range s.all {
		if v, wrong := p.findValue(sources{annotations, accountFor(p, account), ns}); len(wrong) > 0 {
			invalid = append(invalid, wrong...)
		} else {
			found = append(found, v)
		}
	}
	if len(invalid) > 0 {
		return found, invalid
	}
	return found, nil
}

// Given returns the parameters that the pod, its ServiceAccount or its namespace sets. It returns all parameters if one of
// them has no valid value.
func (s *Set) Given(found Values) (set Indexes) {
	if len(found) < len(s.all) {
		return ^set
	}
	for i := range found[:min(len(found), MaxIndexes)] {
		if source := found[i].Source; source != FromDefault && source != Unset {
			set |= 1 << i
		}
	}
	return set
}

// KeyOf returns the annotation that sets a parameter, as users write it, or "" if there is no such parameter.
func (s *Set) KeyOf(name string) string {
	if p := s.named[name]; p != nil {
		return p.key
	}
	return ""
}

// Names returns the names of the parameters, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.named)) }

// OwnNames returns the names of the parameters that the template's own annotations set, sorted.
func (s *Set) OwnNames() []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool { return s.named[name].OfOthers() })
}

// Check returns an error ("is ...") if one of the parameters must not have that value.
func (s *Set) Check(name, value string) error {
	_, err := s.named[name].parseValue(value)
	return err
}

// Annotations returns the annotations that set a parameter to a value, which is in the form that users write.
func (s *Set) Annotations(name, text string) map[string]string {
	p := s.named[name]
	if p.Prefix == "" {
		return map[string]string{p.key: text}
	}
	all := map[string]string{}
	if value, err := p.parseValue(text); err == nil {
		m := value.(traits.Mapper)
		for it := m.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			all[p.Prefix+values.TextOf(key)] = fmt.Sprint(m.Get(key).Value())
		}
	}
	return all
}
