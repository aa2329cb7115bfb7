// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"math/bits"
	"slices"
)

// spread fills the slots: each field lies in the first free one from where its name says.
func (s *schema) spread() {
	s.slots = make([]*field, 1<<bits.Len(uint(2*len(s.fields))))
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		i := slot(name)
		for s.slots[i%len(s.slots)] != nil {
			i++
		}
		s.slots[i%len(s.slots)] = s.fields[name]
	}
}

func slot(name string) int {
	if name == "" {
		return 0
	}
	return len(name) + int(name[0])<<1 + int(name[len(name)-1])<<3 + int(name[len(name)/2])<<2
}
