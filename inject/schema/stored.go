// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/pillion-dev/pillion/templates/tree"
)

// AsStored approximates what an API server stores of a pod: containers and volumes have their defaults, and it has no
// fields that a feature gate may drop. It is for predictions; only the API server knows what it stores.
func AsStored(podJSON []byte) ([]byte, error) {
	pod, err := tree.Parse(podJSON)
	if err != nil {
		return nil, fmt.Errorf("the pod is not JSON: %w", err)
	}
	kept := storedSchema().foreseen(pod, false, true)
	return kept.AppendTo(nil), nil
}

// Default returns what the API server writes into a field that is absent, as JSON. Field is the type and name of the field,
// such as ContainerPort.protocol.
func Default(field string) (value string, ok bool) {
	value, ok = defaults()[field]
	return value, ok
}

var storedSchema = sync.OnceValue(Pod)

// stays reports whether an API server keeps a value, gates aside.
func (f *Field) stays(value *tree.Node) bool {
	return !f.AbsentIsZero || !IsZero(value) || value.Kind() == tree.Object
}

// fillIn adds the defaults of the object's own fields.
func (s *Schema) fillIn(object *tree.Node) {
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		f := s.fields[name]
		value, ok := Default(f.Parent.Name() + "." + name)
		if !ok || f.Gated || object.Get(name) != nil || s.GoType == VolumeType() && len(object.Members()) > 1 {
			continue // a volume of another kind is no emptyDir
		}
		if v, err := tree.Parse([]byte(value)); err == nil {
			object.Set(name, *v)
		}
	}
}

// Foreseen returns a value of a pod with what was added as an API server will store it. If file is true, the rest gets
// its defaults too: an API server has filled in those of the pods that it sends.
func (s *Schema) Foreseen(n *tree.Node, file bool) tree.Node { return s.foreseen(n, file, false) }

// foreseen implements Foreseen. If stored is true, everything counts as added.
func (s *Schema) foreseen(n *tree.Node, file, stored bool) tree.Node {
	stored = stored || n.Added()
	switch {
	case !file && !stored && n.AddedSize() == 0:
		return *n
	case n.Kind() == tree.Array && s.Elem != nil:
		items := n.Items()
		list := tree.Items(make([]tree.Node, 0, len(items))...)
		for i := range items {
			list.Append(s.Elem.foreseen(&items[i], file, stored))
		}
		return list
	case n.Kind() != tree.Object || s.fields == nil:
		return *n
	}
	object := tree.Members()
	for i := range n.Members() {
		m := &n.Members()[i]
		f := s.At(m.Name())
		if stored && f.Gated || (stored || file) && !f.stays(m) {
			continue
		}
		object.Set(m.Name(), f.foreseen(m, file, stored))
	}
	if stored || file {
		s.fillIn(&object)
	}
	return object
}
