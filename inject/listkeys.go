// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// findByKey is [schema.Schema.Find] for a list of the pod that only grows at its end. It indexes a long list, because it is called for
// each item that a template adds.
func (s *subject) findByKey(in *schema.Schema, list, fragment *jsontree.Node) int {
	items := list.Items()
	key, ok := in.TextKey(fragment)
	if !ok || len(items) < longList {
		return in.Find(items, fragment)
	}
	known := s.keys[list]
	if known == nil {
		if s.keys == nil {
			s.keys = map[*jsontree.Node]*keyIndex{}
		}
		known = &keyIndex{first: make(map[string]int, len(items))}
		s.keys[list] = known
		for ; known.came < len(items) && !items[known.came].Added(); known.came++ {
			if other, ok := in.TextKey(&items[known.came]); ok {
				if _, twice := known.first[other]; !twice {
					known.first[other] = known.came
				}
			}
		}
	}
	if i, ok := known.first[key]; ok {
		return i
	}
	if i := in.Find(items[known.came:], fragment); i >= 0 {
		return known.came + i
	}
	return -1
}

// hasContainer reports whether the pod has a container with that name, which must be in brings. For any other name, for example that
// of a generated container, it reports whether the pod has a container whose name is not in brings.
func (s *subject) hasContainer(name string) bool {
	if len(s.presentNames) == 0 {
		s.presentNames = append(s.presentNames, make([]bool, len(s.brings)+1)...)
		for _, list := range schema.ContainerLists() {
			items := s.pod.At("spec", list).Items()
			for i := range items {
				s.presentNames[s.brings[items[i].Get("name").Text()]] = true // constant names of templates' containers are never 0
			}
		}
	}
	return s.presentNames[s.brings[name]]
}

// hasContainerLike reports whether the pod has a container with a name of [templates.Template.Containers], or with a name of that form if
// such containers are generated.
func (s *subject) hasContainerLike(own string) bool {
	if !fragment.IsGenerated(own) {
		return s.hasContainer(own)
	}
	for _, list := range schema.ContainerLists() {
		items := s.pod.At("spec", list).Items()
		for i := range items {
			if fragment.IsNamed(own, items[i].Get("name").Text()) {
				return true
			}
		}
	}
	return false
}
