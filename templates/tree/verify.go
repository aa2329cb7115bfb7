// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"unsafe"
)

// Verifier checks operations `add` (RFC 6902), one after another, against a tree as
// it was parsed: each makes a member that is not there, or an item of a list. It
// does not go by what [Log] notes and [Node.Additions] tells. A value that came
// lies in the text of the value that it came in, and each value keeps how many came in it.
//
// It is stricter than the RFC: whatever an operation goes into has to have come, and
// what goes into a list's items has to come before the items that are inserted.
type Verifier struct {
	root   *Node
	parent *Node  // of the last operation
	path   []byte // of that
	seed   maphash.Seed
	seen   []uint64            // of the paths of members, up to maxSeen
	more   map[uint64]struct{} // of the others
	grown  []grown
}

// grown is a list and how many items were inserted so far.
type grown struct {
	list     *Node
	inserted int
}

// maxSeen is how many operations are compared one by one.
const maxSeen = 32

// Begin begins with the first operation on a tree.
func (v *Verifier) Begin(root *Node) {
	if v.root == nil {
		v.seed = maphash.MakeSeed()
	}
	v.root, v.parent, v.path, v.seen, v.grown = root, nil, v.path[:0], v.seen[:0], v.grown[:0]
	v.more = nil
}

// Add checks the next operation; the error says what is wrong with it.
func (v *Verifier) Add(path []byte) error {
	last := bytes.LastIndexByte(path, '/')
	if last < 0 {
		return errors.New("it replaces the whole pod")
	}
	if v.parent == nil || !bytes.Equal(v.path, path[:last]) {
		parent, err := v.find(path[:last])
		if err != nil {
			return err
		}
		v.parent, v.path = parent, append(v.path[:0], path[:last]...)
	}
	switch name := path[last+1:]; v.parent.kind {
	case Object:
		if m := v.parent.arrived(name); m != nil && !m.saysNothing() {
			return errors.New("the member is there already")
		}
		if v.twice(path) {
			return errors.New("the member was added before")
		}
		return nil
	case Array:
		return v.insert(v.parent, name)
	}
	return errors.New("what it goes into is neither an object nor a list")
}

// find is what came at a path.
func (v *Verifier) find(path []byte) (*Node, error) {
	n := v.root
	n.fill()
	if n.kind != Object || n.text == "" {
		return nil, errors.New("the pod did not come as a text")
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
			n = n.arrived(name)
		case Array:
			if v.grew(n) > 0 {
				return nil, errors.New("it goes into a list whose items have been shifted")
			}
			n = n.arrivedItem(name)
		default:
			n = nil
		}
		if n == nil || n.kind == Null {
			return nil, fmt.Errorf("there is no %q to go into", name)
		}
		n.fill()
	}
	return n, nil
}

// insert checks the index of an item.
func (v *Verifier) insert(list *Node, index []byte) error {
	before := v.grew(list)
	if string(index) != "-" {
		if i, ok := number(index); !ok || i > int(list.came)+before {
			return fmt.Errorf("a list of %d items has no place %q", int(list.came)+before, index)
		}
	}
	for i := range v.grown {
		if v.grown[i].list == list {
			v.grown[i].inserted++
			return nil
		}
	}
	// The member that came as [] may be replaced or filled, not both.
	if list.came == 0 && v.twice(v.path) {
		return errors.New("the list was added or filled before")
	}
	v.grown = append(v.grown, grown{list, 1})
	return nil
}

func (v *Verifier) grew(list *Node) int {
	for i := range v.grown {
		if v.grown[i].list == list {
			return v.grown[i].inserted
		}
	}
	return 0
}

// twice reports whether an operation had the same path.
func (v *Verifier) twice(path []byte) bool {
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

// arrived is the member that came with the object by that name, escaped as in a path,
// whatever has become of it since; nil if there is none.
func (n *Node) arrived(name []byte) *Node {
	plain := bytes.IndexByte(name, '~') < 0
	for i := min(int(n.came), len(n.kids)) - 1; i >= 0; i-- {
		if m := &n.kids[i]; string(name) == m.name && plain || !plain && isEscaped(name, m.name) {
			if !m.in(n) {
				return n.again(m.name)
			}
			return m
		}
	}
	return nil
}

// isEscaped reports whether the token stands for the name in a path.
func isEscaped(token []byte, name string) bool {
	for i := range len(name) {
		escape := ""
		switch name[i] {
		case '~':
			escape = "~0"
		case '/':
			escape = "~1"
		default:
			if len(token) == 0 || token[0] != name[i] {
				return false
			}
			token = token[1:]
			continue
		}
		if len(token) < len(escape) || string(token[:len(escape)]) != escape {
			return false
		}
		token = token[len(escape):]
	}
	return len(token) == 0
}

// again reads the object's text once more, for a member that was overwritten.
func (n *Node) again(name string) *Node {
	came, err := Parse([]byte(n.text))
	if err != nil {
		return nil
	}
	return came.member(name)
}

// arrivedItem is the item that came with the list at that index, or nil.
func (n *Node) arrivedItem(index []byte) *Node {
	i, ok := number(index)
	if !ok || i >= int(n.came) {
		return nil
	}
	for k := range n.kids {
		if !n.kids[k].in(n) {
			continue
		}
		if i == 0 {
			return &n.kids[k]
		}
		i--
	}
	return nil
}

// number is an index as it stands in a path: digits without a zero before them.
func number(digits []byte) (i int, ok bool) {
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

// in reports whether the value lies in the text that its parent came as.
func (n *Node) in(parent *Node) bool {
	if n.text == "" || parent.text == "" {
		return false
	}
	offset := uintptr(unsafe.Pointer(unsafe.StringData(n.text))) - uintptr(unsafe.Pointer(unsafe.StringData(parent.text)))
	return offset < uintptr(len(parent.text))
}

// saysNothing reports whether a value is null or [], which may be given content.
func (n *Node) saysNothing() bool {
	return n.kind == Null || n.kind == Array && len(n.Items()) == 0
}
