// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
)

// field is a member of an object, in the order of its author.
type field struct {
	name  string
	value any // []field, []any, string, or raw
}

// raw is written unchanged.
type raw string

// undoPods makes random documents.
type undoPods struct{ *rand.Rand }

func (r undoPods) one(of ...any) any { return of[r.IntN(len(of))] }

// some are a few of the members, in some order.
func (r undoPods) some(members ...field) []field {
	var all []field
	for _, i := range r.Perm(len(members)) {
		if r.IntN(2) == 0 {
			all = append(all, members[i])
		}
	}
	return all
}

func (r undoPods) list(items ...any) any {
	var all []any
	for _, i := range r.Perm(len(items)) {
		if r.IntN(3) == 0 {
			all = append(all, items[i])
		}
	}
	return all // may be empty
}

// maybe is the value, or nothing in one of its forms.
func (r undoPods) maybe(value any) any {
	if r.IntN(3) == 0 {
		return nil
	}
	return value
}

func (r undoPods) pod() []field {
	env := func() any {
		return r.list([]field{{"name", "A"}, {"value", "1"}}, []field{{"name", "B"}, {"value", "2"}}, []field{{"name", "C"}, {"value", "3"}}, []field{{"name", "X"}, {"value", "x y"}})
	}
	mounts := func() any {
		return r.list([]field{{"name", "logs"}, {"mountPath", "/var/log/app"}}, []field{{"name", "data"}, {"mountPath", "/data"}})
	}
	container := func(name string) any {
		return append([]field{{"name", name}}, r.some(field{"image", "x:1"}, field{"env", r.maybe(env())}, field{"volumeMounts", r.maybe(mounts())},
			field{"args", []any{"a", "b c"}}, field{"securityContext", []field{}}, field{"resources", r.maybe([]field{})})...)
	}
	containers := []any{container("web")}
	if r.IntN(2) == 0 {
		containers = append(containers, container("side"))
	}
	var inits any
	switch r.IntN(4) {
	case 0:
		inits = []any{container("prepare")}
	case 1:
		inits = []any{[]field{{"name", "setup"}, {"image", "setup:1"}}}
	}
	spec := r.some(
		field{"volumes", r.maybe(r.list([]field{{"name", "logs"}, {"emptyDir", []field{}}}, []field{{"name", "data"}, {"emptyDir", []field{}}}))},
		field{"initContainers", inits},
		field{"tolerations", r.maybe(r.list([]field{{"key", "a"}, {"operator", "Exists"}}, []field{{"key", "b"}, {"operator", "Exists"}}))},
		field{"imagePullSecrets", r.maybe(r.list([]field{{"name", "pull"}}, []field{{"name", "mine"}}))},
		field{"hostAliases", r.maybe(r.list([]field{{"ip", "10.0.0.1"}, {"hostnames", []any{"x"}}}, []field{{"ip", "10.0.0.2"}, {"hostnames", []any{"y"}}}))},
		field{"shareProcessNamespace", r.one(nil, raw("true"))},
		field{"securityContext", r.maybe(r.some(field{"fsGroup", r.one(nil, raw("5"))}, field{"supplementalGroups", r.one(nil, []any{}, []any{raw("7")})}))},
		field{"dnsPolicy", "Default"},
	)
	spec = slices.Insert(spec, r.IntN(len(spec)+1), field{"containers", containers})
	metadata := r.some(
		field{"labels", r.maybe(r.some(field{"agent.pillion.dev/team", "ops"}, field{"app", "web"}))},
		field{"annotations", r.maybe(r.some(field{"example.com/scrape", "true"}, field{"second", ""}, field{"own", "a: b"}))},
		field{"name", "web"},
	)
	pod := r.some(field{"metadata", r.maybe(metadata)})
	return slices.Insert(pod, r.IntN(len(pod)+1), field{"spec", spec})
}

// object is a pod, or something with one.
func (r undoPods) object() []field {
	switch pod := r.pod(); r.IntN(4) {
	case 0:
		return append([]field{{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"metadata", []field{{"name", "web"}}}},
			field{"spec", append(r.some(field{"replicas", raw("2")}), field{"template", pod})}, field{"status", []field{}})
	case 1:
		return []field{{"apiVersion", "v1"}, {"kind", "List"}, {"items", []any{append([]field{{"apiVersion", "v1"}, {"kind", "Pod"}}, pod...), append([]field{{"kind", "Pod"}, {"apiVersion", "v1"}}, r.pod()...)}}}
	default:
		return append([]field{{"apiVersion", "v1"}, {"kind", "Pod"}}, pod...)
	}
}

// undoText writes documents in random styles.
type undoText struct {
	undoPods

	strings.Builder

	step    int
	compact bool
}

func (w *undoText) comment() string {
	return w.one("", "", "", " # why", "   # [x] {y} was null").(string)
}

// json writes JSON, with white space as its author likes it.
func (w *undoText) json(v any, at string) {
	space := func() string { return w.one("", "", " ", "\n"+at+"  ", "\t").(string) }
	list := func(open, end string, n int, item func(i int)) {
		w.WriteString(open)
		for i := range n {
			if i > 0 {
				w.WriteString("," + space())
			}
			item(i)
		}
		w.WriteString(space() + end)
	}
	switch v := v.(type) {
	case nil:
		w.WriteString(w.one("null", "[ ]", "[]").(string))
	case raw:
		w.WriteString(string(v))
	case string:
		text, _ := json.Marshal(v)
		w.Write(text)
	case []any:
		list("[", "]", len(v), func(i int) { w.json(v[i], at+"  ") })
	case []field:
		list("{", "}", len(v), func(i int) {
			w.json(v[i].name, "")
			w.WriteString(w.one(":", ": ", " : ").(string))
			w.member(v[i], func(v any) { w.json(v, at+"  ") })
		})
	}
}

// member writes nothing as what its type may be.
func (w *undoText) member(f field, write func(v any)) {
	if f.value != nil {
		write(f.value)
		return
	}
	write(raw(w.empty(f.name, "null", "null")))
}

// empty is a way to write nothing.
func (w *undoText) empty(name string, null ...any) string {
	switch name {
	case "metadata", "labels", "annotations", "resources", "securityContext":
		return w.one(append(null, "{}", "{ }")...).(string)
	case "fsGroup", "shareProcessNamespace":
		return w.one(null...).(string)
	}
	return w.one(append(null, "[]", "[ ]")...).(string)
}

// flow writes YAML in flow style.
func (w *undoText) flow(v any, at string) {
	space := func() string { return w.one("", "", " ", "\n"+at+" ", " # c, ]}\n"+at+" ").(string) }
	list := func(open, end string, n int, item func(i int)) {
		w.WriteString(open + space())
		for i := range n {
			if i > 0 {
				w.WriteString(", " + space())
			}
			item(i)
		}
		w.WriteString(space() + end)
	}
	switch v := v.(type) {
	case nil:
		w.WriteString(w.one("null", "[ ]", "[]").(string))
	case raw:
		w.WriteString(string(v))
	case string:
		w.WriteString(w.scalar(v))
	case []any:
		list("[", "]", len(v), func(i int) { w.flow(v[i], at) })
	case []field:
		list("{", "}", len(v), func(i int) {
			w.WriteString(v[i].name)
			if v[i].value == nil && w.IntN(4) == 0 {
				w.WriteString(w.one(": ", " ", ":  ").(string))
				return
			}
			w.WriteString(": ")
			w.member(v[i], func(v any) { w.flow(v, at) })
		})
	}
}

func (w *undoText) scalar(s string) string {
	double, _ := json.Marshal(s)
	plain := s
	if s == "" || s == "true" || strings.ContainsAny(s, ":0123456789") {
		plain = string(double)
	}
	return w.one(plain, string(double), "'"+s+"'").(string)
}

// block writes YAML in block style, behind a key or a dash.
func (w *undoText) block(v any, column int) {
	at := strings.Repeat(" ", column)
	isEmpty := func() bool {
		switch v := v.(type) {
		case []any:
			return len(v) == 0
		case []field:
			return len(v) == 0
		}
		return true
	}()
	if isEmpty || w.IntN(8) == 0 {
		w.WriteString(" ")
		switch v := v.(type) {
		case []any, []field:
			w.flow(v, at+strings.Repeat(" ", w.step))
		case raw:
			w.WriteString(string(v))
		case string:
			w.WriteString(w.scalar(v))
		}
		w.WriteString(w.comment() + "\n")
		return
	}
	w.WriteString(w.comment() + "\n")
	switch v := v.(type) {
	case []field:
		for _, f := range v {
			w.key(f, column)
		}
	case []any:
		for _, item := range v {
			w.lines(column)
			w.WriteString(at + "-")
			if fields, ok := item.([]field); ok && w.IntN(2) == 0 {
				var rest undoText
				rest.undoPods, rest.step, rest.compact = w.undoPods, w.step, w.compact
				for _, f := range fields {
					rest.key(f, column+2)
				}
				if text := rest.String(); !strings.HasPrefix(strings.TrimLeft(text, " \n"), "#") && !strings.HasPrefix(text, "\n") {
					w.WriteString(" " + strings.TrimLeft(text, " "))
					continue
				}
			}
			w.block(item, column+2)
		}
	}
}

func (w *undoText) key(f field, column int) {
	w.lines(column)
	w.WriteString(strings.Repeat(" ", column) + w.one(f.name, f.name, `"`+f.name+`"`, f.name+" ").(string) + ":")
	at := strings.Repeat(" ", column+w.step)
	if f.value == nil {
		text := w.empty(f.name, "", "", "~", "null", "\n"+at+"null")
		w.WriteString(strings.Repeat(" ", min(len(text), 1)) + text)
		w.WriteString(w.comment() + "\n")
		return
	}
	if list, ok := f.value.([]any); ok && len(list) > 0 && w.compact {
		w.block(list, column)
		return
	}
	if list, ok := f.value.([]field); ok && len(list) == 0 && w.IntN(2) == 0 {
		w.WriteString(w.comment() + "\n" + at + w.one("{}", "{ }", "{\n"+at+"}", "{ # c\n"+at+"}").(string) + w.comment() + "\n")
		return
	}
	w.block(f.value, column+w.step)
}

// lines writes comments and empty lines between others.
func (w *undoText) lines(column int) {
	switch w.IntN(12) {
	case 0:
		w.WriteString(strings.Repeat(" ", column) + "# a comment\n")
	case 1:
		w.WriteString("\n")
	}
}

// undoStream is a random stream of documents.
func undoStream(seed uint64) string {
	r := undoPods{rand.New(rand.NewPCG(seed, 7))}
	var all strings.Builder
	for i := range 1 + r.IntN(2) {
		w := &undoText{undoPods: r, step: 2 + r.IntN(3), compact: r.IntN(2) == 0}
		if i > 0 {
			w.WriteString("---\n")
		}
		switch object := r.object(); r.IntN(4) {
		case 0:
			w.json(object, "")
			w.WriteString("\n")
		case 1:
			w.flow(object, " ")
			w.WriteString("\n")
		default:
			for _, f := range object {
				w.key(f, 0)
			}
		}
		all.WriteString(w.String())
	}
	text := all.String()
	if r.IntN(4) == 0 {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if r.IntN(4) == 0 {
		text = strings.TrimRight(text, "\r\n")
	}
	return text
}
