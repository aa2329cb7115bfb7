// SPDX-License-Identifier: Apache-2.0

package params

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// annotationKey returns the annotation that sets a parameter, as users write it: one of another product, all with a prefix, or
// else the template's own, which is setting.
func annotationKey(p *v1alpha1.Param, setting string) string {
	if p.Prefix != "" {
		return p.Prefix + AnyName
	}
	return cmp.Or(p.Annotation, setting)
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

// collectPrefixValues returns the value of a parameter with a prefix. For each name, the pod's annotation takes precedence over the
// ServiceAccount's, and the ServiceAccount's over the namespace's.
func (p *Param) collectPrefixValues(from sources) (v Value, wrong []*InvalidValueError) {
	texts, origins := map[string]string{}, map[string]string{}
	take := func(key, text, source string) {
		if p.Reads(key) {
			texts[key], origins[key], v.Source = text, source, source // the last one is the most important
		}
	}
	for key, text := range from.ns.Annotations {
		take(key, text, FromNamespace)
	}
	if from.account != nil {
		for key, text := range from.account.Annotations {
			take(key, text, FromServiceAccount)
		}
	}
	members := from.pod.Members()
	for i := range members {
		if members[i].Kind() != jsontree.Null {
			take(members[i].Name(), members[i].Text(), FromPod)
		}
	}
	if len(texts) == 0 {
		return p.preset, nil
	}
	v.Name, v.Annotation = p.Name, p.Prefix+AnyName
	size := 0
	for key, text := range texts {
		size += len(key) - len(p.Prefix) + len(text)
	}
	reject := func(key, source, reason string) {
		wrong = append(wrong, &InvalidValueError{Param: p.Name, Key: key, Source: source, Text: texts[key], reason: reason})
	}
	if n := len(texts); n > p.Count() {
		reject(v.Annotation, v.Source, fmt.Sprintf("is set with %d names; at most %d are allowed", n, p.Count()))
		return v, wrong
	}
	if size > p.length {
		reject(v.Annotation, v.Source, fmt.Sprintf("has names and values of %d bytes together; at most %d are allowed", size, p.length))
		return v, wrong
	}
	parsed, shown := make(map[string]ref.Val, len(texts)), make([]string, 0, len(texts))
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		name := key[len(p.Prefix):]
		value, err := p.parsePrefixedValue(name, texts[key], origins[key])
		if err != nil {
			reject(key, origins[key], err.Error())
		}
		parsed[name], shown = value, append(shown, name+"="+texts[key])
	}
	v.Text, v.cel = strings.Join(shown, ","), values.OfMap(parsed)
	return v, wrong
}

// parsePrefixedValue parses one of the annotations with the prefix.
func (p *Param) parsePrefixedValue(name, text, source string) (ref.Val, error) {
	if err := p.checkOverridable(source); err != nil {
		return nil, err
	}
	if !p.keysPattern.MatchString(name) {
		return nil, fmt.Errorf("ends in %q; the names must match %s", problem.Shorten(name), cmp.Or(p.KeyPattern, usualKeys))
	}
	return p.items.parseValue(text)
}

// checkOverridable returns an error if annotations of a source may not set the parameter.
func (p *Param) checkOverridable(source string) error {
	by := map[string]v1alpha1.Overrider{FromPod: v1alpha1.ByPod, FromServiceAccount: v1alpha1.ByServiceAccount, FromNamespace: v1alpha1.ByNamespace}[source]
	if !p.Overridable(by) {
		return fmt.Errorf("sets a parameter that a %s may not set", source)
	}
	return nil
}
