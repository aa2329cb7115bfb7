// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// InvalidValueError reports a parameter's value that is invalid, or missing.
type InvalidValueError struct {
	Param  string
	Key    string // of the annotation
	Source string // as in Value, or "" if there is no value
	Text   string
	reason string
}

// Error returns one sentence.
func (e *InvalidValueError) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("parameter %s has no value; set the annotation %s", e.Param, e.Key)
	}
	return fmt.Sprintf("the %s's annotation %s %s", e.Source, e.Key, e.reason)
}

// InvalidValuesError reports all of a template's parameters with an invalid value, or without one.
type InvalidValuesError []*InvalidValueError

// Error returns a sentence for each of them, up to a limit.
func (e InvalidValuesError) Error() string {
	const most = 8
	var all []string
	for i, one := range e {
		if i == most {
			all = append(all, fmt.Sprintf("and %d more", len(e)-most))
			break
		}
		all = append(all, one.Error())
	}
	return strings.Join(all, "; ")
}

// Values returns the values of the parameters. A value comes from the pod's annotation, or else
// from the ServiceAccount's, or else from the namespace's, or else it is the default. The function
// podAnnotation is nil if the pod has no annotation of the template. The ServiceAccount may be nil.
// Values omits parameters without a valid value; the error is an [InvalidValuesError] about them.
// Callers must not change the values.
func (t *Template) Values(podAnnotation func(key string) (string, bool), account *ServiceAccount, ns *Namespace) (values Values, err error) {
	if !t.accountSets {
		account = nil // the result must not depend on what other templates read
	}
	switch {
	case len(t.Spec.Params) == 0:
		return nil, nil
	case podAnnotation == nil && account == nil && len(ns.Annotations) == 0 && t.preset != nil:
		return t.preset, nil
	case podAnnotation == nil:
		podAnnotation = func(string) (string, bool) { return "", false }
	}
	values = make(Values, 0, len(t.Spec.Params))
	var invalid InvalidValuesError
	for _, p := range t.ordered {
		if v, wrong := t.value(p, podAnnotation, account, ns); wrong != nil {
			invalid = append(invalid, wrong)
		} else {
			values = append(values, v)
		}
	}
	if len(invalid) > 0 {
		return values, invalid
	}
	return values, nil
}

func (t *Template) value(p *param, podAnnotation func(string) (string, bool), account *ServiceAccount, ns *Namespace) (v Value, wrong *InvalidValueError) {
	v = Value{Name: p.Name}
	reject := func(reason string) (Value, *InvalidValueError) {
		return v, &InvalidValueError{Param: p.Name, Key: p.key, Source: v.Source, Text: v.Text, reason: reason}
	}
	var ok bool
	if v.Text, ok = podAnnotation(p.key); ok {
		v.Source = FromPod
		if !p.Overridable(ByPod) {
			return reject("sets a parameter that a pod may not set")
		}
	} else if v.Text, ok = account.annotation(p.key); ok {
		v.Source = FromServiceAccount
		if !p.Overridable(ByServiceAccount) {
			return reject("sets a parameter that a ServiceAccount may not set")
		}
	} else if v.Text, ok = ns.annotation(p.key); ok {
		v.Source = FromNamespace
		if !p.Overridable(ByNamespace) {
			return reject("sets a parameter that a namespace may not set")
		}
	} else if !p.Needed() {
		return p.preset, nil
	} else {
		return reject("")
	}
	cel, err := p.parse(v.Text)
	if err != nil {
		return reject(err.Error())
	}
	v.cel = cel
	return v, nil
}

func (a *ServiceAccount) annotation(key string) (text string, ok bool) {
	if a != nil {
		text, ok = a.Annotations[key]
	}
	return text, ok
}

func (ns *Namespace) annotation(key string) (text string, ok bool) {
	if len(ns.Annotations) > 0 {
		text, ok = ns.Annotations[key]
	}
	return text, ok
}

// ParamNames returns the names of the declared parameters, sorted.
func (t *Template) ParamNames() []string { return slices.Sorted(maps.Keys(t.params)) }

// Takes returns an error ("is ...") if one of the template's parameters must not have that value.
func (t *Template) Takes(name, value string) error {
	_, err := t.params[name].parse(value)
	return err
}

// OptionalParams returns the names of the optional parameters.
func (t *Template) OptionalParams() (names []string) {
	for i := range t.Spec.Params {
		if t.Spec.Params[i].Optional {
			names = append(names, t.Spec.Params[i].Name)
		}
	}
	return names
}
