// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// world is a situation as one immutable JSON document. Its members are the variables pod, ns,
// serviceAccount and request of expressions.
type world struct {
	doc  map[string]any
	node *jsontree.Node // the parsed document; nil until it is needed
}

func newWorld(s Situation) (*world, error) {
	var pod any
	if err := json.Unmarshal(s.Pod, &pod); err != nil {
		return nil, err
	}
	texts := func(m map[string]string) any {
		all := map[string]any{}
		for k, v := range m {
			all[k] = v
		}
		return all
	}
	account, err := s.ServiceAccount()
	if err != nil {
		return nil, err
	}
	return &world{doc: map[string]any{
		"pod": pod,
		"ns":  map[string]any{"name": s.Namespace.Name, "labels": texts(s.Namespace.Labels), "annotations": texts(s.Namespace.Annotations)},
		// Its name is the pod's.
		accountVariable: map[string]any{"labels": texts(account.Labels), "annotations": texts(account.Annotations)},
		"request":       map[string]any{"operation": "CREATE", "username": s.Username, "dryRun": s.DryRun},
	}}, nil
}

// situation converts the world back. It returns false if the pod cannot be decoded, or if the
// operation is not CREATE.
func (w *world) situation() (Situation, bool) {
	pod, err := json.Marshal(w.doc["pod"])
	if err != nil || !isPod(pod) || w.root().At("request", "operation").Text() != "CREATE" {
		return Situation{}, false
	}
	in := w.input()
	return Situation{Pod: pod, Namespace: in.Namespace, Username: in.Request.Username, DryRun: in.Request.DryRun}, true
}

// input returns the world as input for expressions.
func (w *world) input() *cel.Input {
	root := w.root()
	account := request.ServiceAccount{
		Name:   request.ServiceAccountName(root.At("pod")),
		Labels: w.stringMap(accountVariable, "labels"), Annotations: w.stringMap(accountVariable, "annotations"), Known: true,
	}
	return &cel.Input{
		Pod: root.At("pod"), ServiceAccount: &account,
		Namespace: request.Namespace{
			Name: root.At("ns", "name").Text(), Labels: w.stringMap("ns", "labels"), Annotations: w.stringMap("ns", "annotations"), Known: true,
			ServiceAccounts: request.SameServiceAccount(account),
		},
		Request: request.Info{
			Operation: root.At("request", "operation").Text(), Username: root.At("request", "username").Text(),
			DryRun: root.At("request", "dryRun").Kind() == jsontree.True,
		},
	}
}

// accountVariable is the ServiceAccount in expressions.
const accountVariable = "serviceAccount"

func (w *world) stringMap(of, name string) map[string]string {
	all := map[string]string{}
	members := w.root().At(of, name).Members()
	for i := range members {
		all[members[i].Name()] = members[i].Text()
	}
	return all
}

func (w *world) root() *jsontree.Node {
	if w.node == nil {
		text, err := json.Marshal(w.doc)
		if err == nil {
			w.node, err = jsontree.Parse(text)
		}
		if err != nil {
			panic("sample: " + err.Error()) // cannot fail: it is made of JSON
		}
	}
	return w.node
}

// nodeAt returns the node of a place, or nil.
func (w *world) nodeAt(p path) *jsontree.Node {
	n := w.root()
	for _, step := range p {
		switch step := step.(type) {
		case string:
			n = n.At(step)
		case int:
			items := n.Items()
			if step >= len(items) {
				return nil
			}
			n = &items[step]
		}
	}
	return n
}

// valueAt returns the value of a place, or nil.
func (w *world) valueAt(p path) any {
	var at any = w.doc
	for _, step := range p {
		switch step := step.(type) {
		case string:
			m, _ := at.(map[string]any)
			at = m[step]
		case int:
			items, _ := at.([]any)
			if step >= len(items) {
				return nil
			}
			at = items[step]
		}
	}
	return at
}

// withValue returns a copy of the world with another value in a place; nil removes the value. If the
// value is a volume's source, it removes the source emptyDir.
func (w *world) withValue(p path, value any) *world {
	doc := replaceValue(w.doc, p, nil, value).(map[string]any)
	if len(p) > 4 && p[2] == "volumes" && p[4] != "name" && p[4] != "emptyDir" { // a volume has only one source
		doc = replaceValue(doc, p[:4].childPath("emptyDir"), nil, nil).(map[string]any)
	}
	return &world{doc: doc}
}

// replaceValue returns a copy of a value with another value in a place inside it. The parameter above is
// the path to the value itself.
func replaceValue(of any, p, above path, value any) any {
	if len(p) == 0 {
		return value
	}
	switch step := p[0].(type) {
	case string:
		m, _ := of.(map[string]any)
		m = maps.Clone(m)
		if m == nil {
			m = map[string]any{}
		}
		if changed := replaceValue(m[step], p[1:], above.childPath(step), value); changed != nil {
			m[step] = changed
		} else {
			delete(m, step)
		}
		return m
	case int:
		items, _ := of.([]any)
		items = slices.Clone(items)
		for len(items) <= step && len(items) < maxList {
			items = append(items, newElement(above, len(items)))
		}
		if step >= len(items) {
			return items
		}
		if changed := replaceValue(items[step], p[1:], above.childPath(step), value); changed != nil {
			items[step] = changed
			return items
		}
		return slices.Delete(items, step, step+1)
	}
	return of
}

// withItem returns a copy of the world with another item in a list, and the item's path.
func (w *world) withItem(list path) (*world, path) {
	items, _ := w.valueAt(list).([]any)
	at := list.childPath(len(items))
	return w.withValue(at, newElement(list, len(items))), at
}

// withValues returns a world with more members of an object.
func (w *world) withValues(at path, values map[string]string) *world {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		w = w.withValue(at.childPath(key), values[key])
	}
	return w
}
