// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// longList is how many items a list has that is gone through once for all that
// are looked for in it, and not once for each.
const longList = 32

// keys are the items of a long list by their keys, of those that came with the
// pod: what is added may be taken back.
type keys struct {
	first map[string]int
	came  int
}

// find is [schema.Schema.Find] in a list of the pod that only grows at its end.
func (r *run) find(s *schema.Schema, list, fragment *tree.Node) int {
	items := list.Items()
	key, ok := s.TextKey(fragment)
	if !ok || len(items) < longList {
		return s.Find(items, fragment)
	}
	known := r.keys[list]
	if known == nil {
		if r.keys == nil {
			r.keys = map[*tree.Node]*keys{}
		}
		known = &keys{first: make(map[string]int, len(items))}
		r.keys[list] = known
		for ; known.came < len(items) && !items[known.came].Added(); known.came++ {
			if other, ok := s.TextKey(&items[known.came]); ok {
				if _, twice := known.first[other]; !twice {
					known.first[other] = known.came
				}
			}
		}
	}
	if i, ok := known.first[key]; ok {
		return i
	}
	if i := s.Find(items[known.came:], fragment); i >= 0 {
		return known.came + i
	}
	return -1
}

// has says whether the pod has a container of that name, which some template brings.
func (r *run) has(name string) bool {
	if len(r.here) == 0 {
		r.here = append(r.here, make([]bool, len(r.brings)+1)...)
		for _, list := range containerLists() {
			items := r.pod.At("spec", list).Items()
			for i := range items {
				r.here[r.brings[items[i].Get("name").Text()]] = true // none of them is 0
			}
		}
	}
	return r.here[r.brings[name]]
}
