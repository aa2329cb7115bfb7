// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"unsafe"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Scratch is memory for looking at one pod after another. Its zero value may be
// used; what was told of a pod holds until the next one.
type Scratch struct {
	tree.Parser // of the pod, or of what it is in

	log        tree.Log
	run        run
	settling   settling
	pass       pass
	result     Result
	decisions  []Decision
	candidates []candidate
}

// Kept is how many bytes are kept for the next pod.
func (s *Scratch) Kept() int {
	return s.Parser.Kept() + s.log.Kept() + cap(s.decisions)*int(unsafe.Sizeof(Decision{})) + cap(s.candidates)*int(unsafe.Sizeof(candidate{}))
}

// makeRoom makes room for the decisions about so many templates.
func (s *Scratch) makeRoom(templates int) {
	s.decisions = slices.Grow(s.decisions[:0], templates)[:templates]
	s.candidates = slices.Grow(s.candidates[:0], templates)[:templates]
}
