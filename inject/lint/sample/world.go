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

// world is a situation as one immutable JSON document. Its members are the variables pod, ns, serviceAccount and request of
// expressions.
type world struct {
	doc    map[string]any
	node   *jsontree.Node // the document; nil until it is needed
	around surroundings   // the document without the pod
}

// surroundings are what templates read besides the pod.
type surroundings struct {
	Namespace      labeled   `json:"ns"`
	ServiceAccount labeled   `json:"serviceAccount"` // its name is the pod's
	Request        requested `json:"request"`
}

func newWorld(s Situation) (*world, error) {
	account, err := s.ServiceAccount()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(struct {
		Pod json.RawMessage `json:"pod"`
		surroundings
	}{s.Pod, surroundings{
		labeled{s.Namespace.Name, s.Namespace.Labels, s.Namespace.Annotations},
		labeled{"", account.Labels, account.Annotations},
		requested{"CREATE", s.Username, s.DryRun},
	}})
	if err != nil {
		return nil, err
	}
	w := &world{}
	return w, json.Unmarshal(text, &w.doc)
}

// root returns the document.
func (w *world) root() *jsontree.Node {
	if w.node == nil {
		text, err := json.Marshal(w.doc)
		if err == nil {
			w.node, err = jsontree.Parse(text)
		}
		if err == nil {
			err = json.Unmarshal(text, &w.around)
		}
		if err != nil {
			panic("sample: " + err.Error()) // cannot fail: it is made of JSON
		}
	}
	return w.node
}

// toSituation converts the world back. It returns false if the pod cannot be decoded or has no container, or if the operation is not
// CREATE.
func (w *world) toSituation() (Situation, bool) {
	in := w.toInput()
	pod, err := json.Marshal(w.doc["pod"])
	if err != nil || !isPod(pod) || len(w.childPaths(containers)) == 0 || in.Request.Operation != "CREATE" {
		return Situation{}, false
	}
	return Situation{Pod: pod, Namespace: in.Namespace, Username: in.Request.Username, DryRun: in.Request.DryRun}, true
}

// toInput returns the world as input for expressions.
func (w *world) toInput() *cel.Input {
	pod, of := w.root().At("pod"), &w.around
	account := request.ServiceAccount{
		Name: request.ServiceAccountName(pod), Labels: of.ServiceAccount.Labels, Annotations: of.ServiceAccount.Annotations, Known: true,
	}
	return &cel.Input{
		Pod: pod, ServiceAccount: &account, Request: request.Info(of.Request),
		Namespace: request.Namespace{
			Name: of.Namespace.Name, Labels: of.Namespace.Labels, Annotations: of.Namespace.Annotations, Known: true,
			ServiceAccounts: request.SameServiceAccount(account),
		},
	}
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

// childPaths returns the places of the items of a list, or of the members of a map, sorted.
func (w *world) childPaths(p path) (all []path) {
	n := w.nodeAt(p)
	for i := range n.Items() {
		all = append(all, p.childPath(i))
	}
	var names []string
	members := n.Members()
	for i := range members {
		names = append(names, members[i].Name())
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, p.childPath(name))
	}
	return all
}

// withValue returns a copy of the world with another value in a place; nil removes the value. If the value is a volume's source, it
// removes the source emptyDir.
func (w *world) withValue(p path, value any) *world {
	doc := replaceValue(w.doc, p, nil, value).(map[string]any)
	if len(p) > 4 && p[2] == "volumes" && p[4] != "name" && p[4] != "emptyDir" { // a volume has only one source
		doc = replaceValue(doc, p[:4].childPath("emptyDir"), nil, nil).(map[string]any)
	}
	return &world{doc: doc}
}

// replaceValue returns a copy of a value with another value in a place inside it. The parameter above is the path to the value
// itself.
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
		for len(items) <= step {
			items = append(items, newElement(above, len(items)))
		}
		if changed := replaceValue(items[step], p[1:], above.childPath(step), value); changed != nil {
			items[step] = changed
			return items
		}
		return slices.Delete(items, step, step+1)
	}
	return of
}

// withSize returns a copy of the world in which a list has so many items.
func (w *world) withSize(list path, size int) *world {
	for n := len(w.childPaths(list)); n > size; n-- {
		w = w.withValue(list.childPath(n-1), nil)
	}
	if size > len(w.childPaths(list)) {
		w = w.withValue(list.childPath(size-1), newElement(list, size-1))
	}
	return w
}
