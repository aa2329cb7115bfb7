// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"iter"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// isSidecar reports whether a container has the restartPolicy of a native sidecar.
func isSidecar(container *jsontree.Node) bool {
	return container.Get("restartPolicy") != nil && container.Get("restartPolicy").IsText(string(corev1.ContainerRestartPolicyAlways))
}

func hasMountAt(container *jsontree.Node, path string) bool {
	list := container.Get("volumeMounts").Items()
	for i := range list {
		if list[i].Get("mountPath").IsText(path) {
			return true
		}
	}
	return false
}

// pointerTokens yields the index of each item, and the token for it in a JSON Pointer: the index without added items, or "-" for an
// added item. See [schema.Pointer.String].
func pointerTokens(items []jsontree.Node) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		came := 0
		for i := range items {
			name := "-"
			if !items[i].IsNew() {
				name, came = strconv.Itoa(came), came+1
			}
			if !yield(i, name) {
				return
			}
		}
	}
}

// isEmptyList reports whether a value is an empty list. Only files have those, because an API
// server omits them.
func isEmptyList(n *jsontree.Node) bool {
	return n.Kind() == jsontree.Array && len(n.Items()) == 0
}

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
