// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// This file knows which annotations have the value of a parameter: one of the template's own, one
// of another product, or all with a prefix.

// Key returns the annotation that sets a parameter, as users write it.
func (t *Template) Key(p *v1alpha1.Param) string {
	if p.Prefix != "" {
		return p.Prefix + AnyName
	}
	return cmp.Or(p.Annotation, t.Setting(p.Name))
}

// Annotations returns the annotations that set a parameter to a value.
func (t *Template) Annotations(p *v1alpha1.Param, text string) map[string]string {
	if p.Prefix == "" {
		return map[string]string{t.Key(p): text}
	}
	all := map[string]string{}
	if value, err := t.params[p.Name].parseValue(text); err == nil {
		m := value.(traits.Mapper)
		for it := m.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			all[p.Prefix+values.TextOf(key)] = fmt.Sprint(m.Get(key).Value())
		}
	}
	return all
}

// ParamText returns a value of a parameter as users write it. It returns false for a value that
// cannot be written.
func (t *Template) ParamText(name string, value ref.Val) (string, bool) {
	p := t.params[name]
	if p == nil {
		return "", false
	}
	var all []string
	switch value := value.(type) {
	case traits.Mapper:
		if p.row.parts != ofPairs {
			break
		}
		for it := value.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			all = append(all, fmt.Sprint(key.Value(), separatorOf(&p.Param), value.Get(key).Value()))
		}
		return strings.Join(all, ","), true
	case traits.Lister:
		if p.row.parts != ofItems {
			break
		}
		for it := value.Iterator(); it.HasNext() == types.True; {
			all = append(all, fmt.Sprint(it.Next().Value()))
		}
		return strings.Join(all, ","), true
	}
	if p.row.parts == ofJSON {
		text, err := values.AppendJSON(nil, value)
		return string(text), err == nil
	}
	return fmt.Sprint(value.Value()), true
}

// ParamOfSize returns a value of a list or a map with so many items, as users write it. It returns ""
// if there is none.
func (t *Template) ParamOfSize(name string, size int) string {
	p := t.params[name]
	if p == nil || p.items == nil {
		return ""
	}
	samples := Samples(&p.items.Param)
	valid := slices.IndexFunc(samples, func(sample string) bool { _, err := p.items.parseValue(sample); return err == nil })
	if valid < 0 {
		return ""
	}
	key := func(i int) string { return fmt.Sprint("sample", i) }
	if len(p.Keys) > 0 {
		key, size = func(i int) string { return p.Keys[i] }, min(size, len(p.Keys))
	}
	all := make([]string, size)
	for i := range all {
		if all[i] = samples[valid]; p.row.parts == ofPairs {
			all[i] = fmt.Sprint(key(i), separatorOf(&p.Param), samples[valid])
		}
	}
	return strings.Join(all, ",")
}

// noteSources records the annotations of other products as parts of the pod that the template
// reads: a template may add them. Its own annotations are not read here, because no template may
// add those.
func (r reads) noteSources(params []v1alpha1.Param) {
	for i := range params {
		switch p := &params[i]; {
		case p.Prefix != "":
			r["metadata.annotations["+p.Prefix+"*]"] = true
		case p.Annotation != "":
			r["metadata.annotations["+p.Annotation+"]"] = true
		}
	}
}

// collectPrefixValues returns the value of a parameter with a prefix. The pod's annotations win over the
// ServiceAccount's, and these over the namespace's, name by name.
func (p *param) collectPrefixValues(from sources) (v Value, wrong []*InvalidValueError) {
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
func (p *param) parsePrefixedValue(name, text, source string) (ref.Val, error) {
	if err := p.checkOverridable(source); err != nil {
		return nil, err
	}
	if !p.keysPattern.MatchString(name) {
		return nil, fmt.Errorf("ends in %q; the names must match %s", shortenForError(name), cmp.Or(p.KeyPattern, usualKeys))
	}
	return p.items.parseValue(text)
}

// checkOverridable returns an error if annotations of a source may not set the parameter.
func (p *param) checkOverridable(source string) error {
	by := map[string]v1alpha1.Overrider{FromPod: v1alpha1.ByPod, FromServiceAccount: v1alpha1.ByServiceAccount, FromNamespace: v1alpha1.ByNamespace}[source]
	if !p.Overridable(by) {
		return fmt.Errorf("sets a parameter that a %s may not set", source)
	}
	return nil
}
