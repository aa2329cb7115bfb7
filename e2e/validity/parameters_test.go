// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
)

// parametrize replaces values by expressions, each with a parameter that pods set.
func (s *sketch) parametrize(m *maker, n int) {
	for range n {
		next := s.copy()
		var leaves []leaf
		next.leaves(next.fragment, reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.Pod](), "", &leaves)
		if next.each != nil {
			next.leaves(next.each, reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.Container](), "", &leaves)
		}
		if len(leaves) == 0 {
			return
		}
		l := leaves[m.IntN(len(leaves))]
		if whole := slices.DeleteFunc(slices.Clone(leaves), func(l leaf) bool { return isLeaf(l.value) }); len(whole) > 0 && m.in(3) {
			l = whole[m.IntN(len(whole))] // there are fewer of these
		}
		if strings.Contains(fmt.Sprint(l.value), "${") {
			continue
		}
		name := fmt.Sprint("p", len(next.params))
		w := pick(m, l.ways(m, name)...)
		param := object{"name": name, "maxLength": 16384}
		maps.Copy(param, w.param)
		next.params = append(next.params, param)
		l.set(w.expression)
		if m.in(2) {
			next.values[w.key(next.name, name)] = w.text(m.value(l.typ, l.parent, l.name, 0))
		}
		next.ways = append(next.ways, w.name)
		if problems := next.loadTemplates(); len(problems) == 0 {
			*s = *next
		}
	}
}

// way is a parameter that gives a leaf its value.
type way struct {
	name       string
	param      object
	expression string
	text       func(value any) string // an annotation that sets the parameter to a value
}

// key returns the annotation that sets the parameter.
func (w *way) key(template, param string) string {
	if prefix, ok := w.param["prefix"].(string); ok {
		return prefix + "k"
	}
	return template + "." + templates.Domain + "/" + param
}

// ways returns the parameters that can give the leaf its value.
func (l *leaf) ways(m *maker, name string) []way {
	pairs := func(v any) string {
		var all []string
		if o, ok := v.(object); ok {
			for _, key := range sortedKeys(o) {
				all = append(all, fmt.Sprint(key, "=", o[key]))
			}
		}
		return strings.Join(all, ",")
	}
	param := "params." + name
	keys := object{"type": "map", "keyPattern": ".*"}
	switch l.typ {
	case reflect.TypeFor[[]string]():
		items := func(v any) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]") }
		return []way{
			{"list for a list", object{"type": "list", "default": items(l.value)}, "${" + param + "}", items},
			{"JSON for a list", object{"type": "json", "default": string(compact(l.value))}, "${" + param + ".map(x, string(x))}", func(v any) string { return string(compact(v)) }},
		}
	case reflect.TypeFor[[]corev1.EnvVar]():
		variables := func(v any) string {
			var all []string
			list, _ := v.([]any)
			for i := range list {
				e, _ := list[i].(object)
				all = append(all, fmt.Sprint(e["name"], "=", pick(m, "1", "", "$(A)")))
			}
			return strings.Join(all, ",")
		}
		return []way{{"map for variables", with(keys, "default", "A=1"), fmt.Sprintf("${%s.map(k, {'name': k, 'value': %[1]s[k]})}", param), variables}}
	case reflect.TypeFor[corev1.ResourceRequirements]():
		return []way{{"map for resources", with(keys, "default", "cpu=1"), "${ {'" + pick(m, "requests", "limits") + "': " + param + "} }", func(v any) string {
			o, _ := v.(object)
			if o["limits"] == nil {
				return pairs(o["requests"])
			}
			return pairs(o["limits"])
		}}}
	}
	return l.scalarWays(m, name)
}

// scalarWays are the ways for a leaf that is a string, a number or a boolean.
func (l *leaf) scalarWays(m *maker, name string) []way {
	kind, convert := "string", "string"
	switch l.value.(type) {
	case int, float64:
		kind, convert = "integer", "int"
	case bool:
		kind, convert = "boolean", "bool"
	}
	items := object{"type": kind}
	if kind == "string" {
		items["maxLength"] = 16384
	}
	pair := func(v any) string { return fmt.Sprint("k=", v) }
	document := func(v any) string { return string(compact(object{"v": v})) }
	list := func(v any) string { return fmt.Sprint(v, pick(m, "", ",b", " , "+fmt.Sprint(v))) }
	param := "params." + name
	return []way{
		{kind, object{"type": kind, "default": l.value}, "${" + param + "}", func(v any) string { return fmt.Sprint(v) }},
		{"optional", object{"type": kind, "optional": true}, "${params.?" + name + "}", func(v any) string { return fmt.Sprint(v) }},
		{"list", object{"type": "list", "items": items, "default": fmt.Sprint(l.value)}, "${" + param + pick(m, "[0]", "[?0]") + "}", list},
		{"map", object{"type": "map", "items": items, "default": pair(l.value)}, "${" + param + pick(m, "['k']", "[?'k']") + "}", pair},
		{"JSON", object{"type": "json", "default": document(l.value)}, "${" + convert + "(" + param + ".v)}", document},
		{"prefix", object{"prefix": "example.com/" + name + "-", "items": items, "default": pair(l.value)}, "${" + param + pick(m, "['k']", "[?'k']") + "}", func(v any) string { return fmt.Sprint(v) }},
	}
}

func with(o object, key string, value any) object {
	o = maps.Clone(o)
	o[key] = value
	return o
}

// leaf is a scalar of a fragment, or a value that a list or a map can be as a whole.
type leaf struct {
	value       any
	typ, parent reflect.Type
	name        string
	set         func(any)
}

func (s *sketch) leaves(v any, t, parent reflect.Type, name string, all *[]leaf) {
	switch v := v.(type) {
	case object:
		for _, k := range sortedKeys(v) {
			next, of := t, t
			if t.Kind() == reflect.Map {
				next = t.Elem()
			} else {
				i := slices.IndexFunc(fieldsOf(t), func(f field) bool { return f.name == k })
				if i < 0 {
					continue
				}
				next = fieldsOf(t)[i].typ
			}
			next = deref(next)
			if isLeaf(v[k]) || isWhole(next, k) {
				*all = append(*all, leaf{v[k], next, of, k, func(to any) { v[k] = to }})
			}
			if !isLeaf(v[k]) && slices.Contains([]reflect.Kind{reflect.Map, reflect.Slice, reflect.Struct}, next.Kind()) {
				s.leaves(v[k], next, of, k, all)
			}
		}
	case []any:
		for i := range v {
			if isLeaf(v[i]) {
				*all = append(*all, leaf{v[i], deref(t.Elem()), parent, name, func(to any) { v[i] = to }})
			} else if t.Kind() == reflect.Slice {
				s.leaves(v[i], deref(t.Elem()), parent, name, all)
			}
		}
	}
}

// isWhole reports whether an expression of a list or a map can be the whole field.
func isWhole(t reflect.Type, name string) bool {
	return t == reflect.TypeFor[[]string]() || t == reflect.TypeFor[[]corev1.EnvVar]() && name == "env" || t == reflect.TypeFor[corev1.ResourceRequirements]()
}

func isLeaf(v any) bool {
	switch v.(type) {
	case string, int, float64, bool:
		return true
	}
	return false
}
