// SPDX-License-Identifier: Apache-2.0

package params

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
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

// sources are the objects whose annotations set a parameter.
type sources struct {
	pod     *jsontree.Node // its annotations
	account *request.ServiceAccount
	ns      *request.Namespace
}

// accountFor returns the ServiceAccount if its annotations count for a parameter. Annotations of other
// products are usual in ServiceAccounts, so they count only if the template reads them there.
func accountFor(p *Param, a *request.ServiceAccount) *request.ServiceAccount {
	if p.OfOthers() && !p.Overridable(v1alpha1.ByServiceAccount) {
		return nil
	}
	return a
}

// findValue returns the value of a parameter, or what is wrong with it.
func (p *Param) findValue(from sources) (v Value, wrong []*InvalidValueError) {
	if p.Prefix != "" {
		return p.collectPrefixValues(from)
	}
	v = Value{Name: p.Name, Annotation: p.Annotation}
	reject := func(reason string) (Value, []*InvalidValueError) {
		return v, []*InvalidValueError{{Param: p.Name, Key: p.key, Source: v.Source, Text: v.Text, reason: reason}}
	}
	if of := from.pod.Get(p.key); of != nil {
		v.Text, v.Source = of.Text(), FromPod
	} else if text, ok := from.account.Annotation(p.key); ok {
		v.Text, v.Source = text, FromServiceAccount
	} else if text, ok := from.ns.Annotation(p.key); ok {
		v.Text, v.Source = text, FromNamespace
	} else if !p.Needed() {
		return p.preset, nil
	} else {
		return reject("")
	}
	if err := p.checkOverridable(v.Source); err != nil {
		return reject(err.Error())
	}
	cel, err := p.parseValue(v.Text)
	if err != nil {
		return reject(err.Error())
	}
	v.cel = cel
	return v, nil
}
