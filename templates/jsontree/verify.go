// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"unsafe"
)

// Verifier checks a sequence of `add` operations (RFC 6902) against the parsed tree. Each must
// create a member that does not exist, or a list item. It does not rely on [Journal] or
// [Node.Additions]: an original value's JSON lies inside the JSON of its parent, and each
// value stores its original number of children.
//
// It is stricter than the RFC. An operation may only add to original values. Additions to a
// list's items must come before the items that are inserted into the list.
type Verifier struct {
	root   *Node
	parent *Node  // target of the last operation
	path   []byte // path of the last operation
	seed   maphash.Seed
	seen   []uint64            // hashes of member paths, up to maxSeen
	more   map[uint64]struct{} // further hashes
	grown  []grown
}

// grown is a list and the number of items that were inserted so far.
type grown struct {
	list     *Node
	inserted int
}

// maxSeen is the number of operations that are compared one by one.
const maxSeen = 32

// Begin starts with the first operation on a tree.
func (v *Verifier) Begin(root *Node) {
	if v.root == nil {
		v.seed = maphash.MakeSeed()
	}
	v.root, v.parent, v.path, v.seen, v.grown = root, nil, v.path[:0], v.seen[:0], v.grown[:0]
	v.more = nil
}

// Add checks the next operation, and returns an error if it is invalid.
func (v *Verifier) Add(path []byte) error {
	last := bytes.LastIndexByte(path, '/')
	if last < 0 {
		return errors.New("it replaces the whole pod")
	}
	if v.parent == nil || !bytes.Equal(v.path, path[:last]) {
		parent, err := v.findOriginal(path[:last])
		if err != nil {
			return err
		}
		v.parent, v.path = parent, append(v.path[:0], path[:last]...)
	}
	switch name := path[last+1:]; v.parent.kind {
	case Object:
		if m := v.parent.originalMember(name); m != nil && !m.saysNothing() {
			return errors.New("the member is there already")
		}
		if v.isRepeated(path) {
			return errors.New("the member was added before")
		}
		return nil
	case Array:
		return v.checkInsertion(v.parent, name)
	}
	return errors.New("what it goes into is neither an object nor a list")
}

// findOriginal returns the original value at a path.
func (v *Verifier) findOriginal(path []byte) (*Node, error) {
	n := v.root
	n.openKids()
	if n.kind != Object || n.text == "" {
		return nil, errors.New("the pod is not the JSON object that was received")
	}
	for len(path) > 0 {
		name := path[1:]
		if end := bytes.IndexByte(name, '/'); end >= 0 {
			name, path = name[:end], name[end:]
		} else {
			path = nil
		}
		switch n.kind {
		case Object:
			n = n.originalMember(name)
		case Array:
			if v.insertedInto(n) > 0 {
				return nil, errors.New("it goes into a list whose items have been shifted")
			}
			n = n.originalItem(name)
		default:
			n = nil
		}
		if n == nil || n.kind == Null {
			return nil, fmt.Errorf("there is no %q to go into", name)
		}
		n.openKids()
	}
	return n, nil
}

// checkInsertion checks the index of an item.
func (v *Verifier) checkInsertion(list *Node, index []byte) error {
	before := v.insertedInto(list)
	if string(index) != "-" {
		if i, ok := parseIndex(index); !ok || i > int(list.came)+before {
			return fmt.Errorf("a list of %d items has no place %q", int(list.came)+before, index)
		}
	}
	for i := range v.grown {
		if v.grown[i].list == list {
			v.grown[i].inserted++
			return nil
		}
	}
	// An original [] may be replaced or filled, but not both.
	if list.came == 0 && v.isRepeated(v.path) {
		return errors.New("the list was added or filled before")
	}
	v.grown = append(v.grown, grown{list, 1})
	return nil
}

func (v *Verifier) insertedInto(list *Node) int {
	for i := range v.grown {
		if v.grown[i].list == list {
			return v.grown[i].inserted
		}
	}
	return 0
}

// isRepeated reports whether a previous operation had the same path.
func (v *Verifier) isRepeated(path []byte) bool {
	hash := maphash.Bytes(v.seed, path)
	if slices.Contains(v.seen, hash) {
		return true
	}
	if len(v.seen) < maxSeen {
		v.seen = append(v.seen, hash)
		return false
	}
	if v.more == nil {
		v.more = map[uint64]struct{}{}
	}
	_, twice := v.more[hash]
	v.more[hash] = struct{}{}
	return twice
}

// originalMember returns the object's original member with this name, escaped as in a path, even if
// it was replaced since. It returns nil if there is none.
func (n *Node) originalMember(name []byte) *Node {
	plain := bytes.IndexByte(name, '~') < 0
	for i := min(int(n.came), len(n.kids)) - 1; i >= 0; i-- {
		if m := &n.kids[i]; plain && m.name == string(name) || !plain && Escape(m.name) == string(name) {
			if !m.isInside(n) {
				return n.reparseMember(m.name)
			}
			return m
		}
	}
	return nil
}

// reparseMember parses the object's JSON again, to find a member that was replaced.
func (n *Node) reparseMember(name string) *Node {
	came, err := Parse([]byte(n.text))
	if err != nil {
		return nil
	}
	return came.findMember(name)
}

// originalItem returns the list's original item with this index, or nil.
func (n *Node) originalItem(index []byte) *Node {
	i, ok := parseIndex(index)
	if !ok || i >= int(n.came) {
		return nil
	}
	for k := range n.kids {
		if !n.kids[k].isInside(n) {
			continue
		}
		if i == 0 {
			return &n.kids[k]
		}
		i--
	}
	return nil
}

// parseIndex parses an index in a path: digits without a leading zero.
func parseIndex(digits []byte) (i int, ok bool) {
	if len(digits) == 0 || len(digits) > 9 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		i = 10*i + int(c-'0')
	}
	return i, true
}

// isInside reports whether the value's JSON lies inside the JSON of its parent.
func (n *Node) isInside(parent *Node) bool {
	if n.text == "" || parent.text == "" {
		return false
	}
	offset := uintptr(unsafe.Pointer(unsafe.StringData(n.text))) - uintptr(unsafe.Pointer(unsafe.StringData(parent.text)))
	return offset < uintptr(len(parent.text))
}

// saysNothing reports whether a value is null or [], so that it may get a value.
func (n *Node) saysNothing() bool {
	return n.kind == Null || n.kind == Array && len(n.Items()) == 0
}
