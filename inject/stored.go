// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"slices"
	"sync"

	"github.com/pillion-dev/pillion/templates/tree"
)

// AsStored is about what an API server keeps of a pod: its containers and volumes have
// their defaults, and what a feature gate may drop is gone. It is for tries; only the
// API server knows what it keeps.
func AsStored(podJSON []byte) ([]byte, error) {
	pod, err := tree.Parse(podJSON)
	if err != nil {
		return nil, notJSON(err)
	}
	kept := storedSchema().stored(pod)
	return kept.AppendTo(nil), nil
}

var storedSchema = sync.OnceValue(podSchema)

func (s *schema) stored(n *tree.Node) tree.Node {
	switch {
	case n.Kind() == tree.Array && s.elem != nil:
		list := tree.Items()
		for i := range n.Items() {
			list.Append(s.elem.stored(&n.Items()[i]))
		}
		return list
	case n.Kind() != tree.Object || s.fields == nil:
		return *n
	}
	object := tree.Members()
	for i := range n.Members() {
		m := &n.Members()[i]
		if f := s.at(m.Name()); !f.gated && (!f.absentIsZero || !isZero(m) || m.Kind() == tree.Object) {
			object.Set(m.Name(), f.stored(m))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		f := s.fields[name]
		value, ok := defaults()[f.parent.Name()+"."+name]
		if !ok || f.gated || object.Get(name) != nil || s.goType == volume() && len(object.Members()) > 1 {
			continue // a volume of another kind is no emptyDir
		}
		if v, err := tree.Parse([]byte(value)); err == nil {
			object.Set(name, *v)
		}
	}
	return object
}
