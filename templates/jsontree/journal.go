// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Journal records what was added to a tree, so that it can be undone. Its zero value is ready
// to use.
type Journal struct {
	Nodes *Arena // memory for additions, or nil
	// Tentative marks what is added as not to be written: [Node.DropTentative] removes it.
	Tentative bool
	before    []change
}

// change is the previous state of a node, or an item that was inserted into it.
type change struct {
	at       *Node
	was      Node
	inserted bool // an item was inserted; was is empty
	item     int
}

func (j *Journal) noteChange(n *Node) { j.before = append(j.before, change{at: n, was: *n}) }

// Add adds a member at the end of an object and returns it. It may replace an existing member
// that is null or [], because both mean that there is no value. If the member has another
// value, Add returns nil and changes nothing.
func (j *Journal) Add(n *Node, name string, value Node) *Node {
	value.added, value.name = j.additionMark(), name
	if m := n.findMember(name); m != nil {
		if m.kind != Null && (m.kind != Array || len(m.Items()) > 0) {
			return nil
		}
		j.noteChange(m)
		*m = value
		return m
	}
	j.insertKid(n, len(n.kids), value)
	return &n.kids[len(n.kids)-1]
}

// Insert inserts an item before item i of an array; i may be the array's length.
func (j *Journal) Insert(n *Node, i int, value Node) {
	n.openKids()
	value.added = j.additionMark()
	j.insertKid(n, i, value)
}

func (j *Journal) additionMark() addition {
	if j.Tentative {
		return tentative
	}
	return added
}

// insertKid moves the nodes after the new one. It moves all nodes only if there is no room, so
// repeated additions to a long list copy it once.
func (j *Journal) insertKid(n *Node, i int, value Node) {
	if len(n.kids) == cap(n.kids) {
		j.makeRoom(n)
	}
	j.before = append(j.before, change{at: n, inserted: true, item: i})
	n.kids = n.kids[:len(n.kids)+1]
	copy(n.kids[i+1:], n.kids[i:])
	n.kids[i] = value
}

// mostRoom limits how many spare nodes a long list gets.
const mostRoom = 1024

// makeRoom moves a node's children to a larger slice. The children of a long list stay there
// after an undo, so that the next template does not move them again. Then the journal's pointers to
// them must follow. That reads the whole journal, so it is done only for lists longer than that.
func (j *Journal) makeRoom(n *Node) {
	old := n.kids
	stays := len(old) > len(j.before)
	if !stays {
		j.noteChange(n)
	}
	n.kids = append(j.Nodes.Nodes(len(old)+min(len(old), mostRoom)+spare), old...)
	if !stays {
		return
	}
	for i := range j.before {
		if k := indexOf(old, j.before[i].at); k >= 0 {
			j.before[i].at = &n.kids[k]
		}
	}
}

// indexOf returns the index of the node in the list, or -1 if it is not in it.
func indexOf(list []Node, n *Node) int {
	if len(list) == 0 {
		return -1
	}
	distance := uintptr(unsafe.Pointer(n)) - uintptr(unsafe.Pointer(&list[0]))
	if i := distance / unsafe.Sizeof(Node{}); i < uintptr(len(list)) {
		return int(i)
	}
	return -1
}

// Copy returns a copy that has the same additions, and to which more may be added. [Node.Added] reports only those that are
// added to the copy.
func (n *Node) Copy() Node {
	c := *n
	if n.added == added {
		c.added = addedEarlier
	}
	c.kids = slices.Clone(n.kids)
	for i := range c.kids {
		c.kids[i] = n.kids[i].Copy()
	}
	return c
}

// IsTentative reports whether the node was added and is not to be written, see [Journal.Tentative].
func (n *Node) IsTentative() bool { return n != nil && n.added == tentative }

// DropTentative removes what was added tentatively, together with the added objects and lists that become empty. What replaced
// null or [] in the original tree becomes that again.
func (n *Node) DropTentative(original *Node) {
	if !n.HasNew() {
		return
	}
	kids, came := n.kids[:0:0], 0
	for i := range n.kids {
		kid, was := &n.kids[i], (*Node)(nil)
		switch {
		case n.kind == Object && original.Kind() == Object:
			was = original.findMember(n.kids[i].name)
		case n.kind == Array && original.Kind() == Array && !kid.IsNew():
			was = &original.Items()[came]
			came++
		}
		if before := len(kid.kids); kid.added != tentative {
			in := was
			if kid.IsNew() {
				in = nil
			}
			if kid.DropTentative(in); !kid.IsNew() || len(kid.kids) > 0 || before == 0 {
				kids = append(kids, *kid)
				continue
			}
		}
		if n.kind == Object && was != nil {
			kids = append(kids, *was)
		}
	}
	n.kids = kids
}

// HasAtMost reports whether a value has at most n values in it. It counts those that have been read.
func (n *Node) HasAtMost(most int) bool {
	_, ok := n.countValues(most)
	return ok
}

func (n *Node) countValues(most int) (left int, ok bool) {
	if left = most - len(n.kids); left < 0 {
		return left, false
	}
	for i := range n.kids {
		if left, ok = n.kids[i].countValues(left); !ok {
			return left, false
		}
	}
	return left, true
}

// Change gives an added node another value.
func (j *Journal) Change(n *Node, value Node) {
	j.noteChange(n)
	value.added, value.name = n.added, n.name
	*n = value
}

// Own makes a node, which may be shared, safe to add to.
func (j *Journal) Own(n *Node) {
	j.noteChange(n)
	*n = n.Clone()
}

// Keep forgets the recorded additions, so they can no longer be undone.
func (j *Journal) Keep() { j.before = j.before[:0] }

// Kept returns the number of bytes that are kept for the next pod.
func (j *Journal) Kept() int { return cap(j.before) * int(unsafe.Sizeof(change{})) }

// Undo removes what was added since the last Keep. It invalidates pointers into the tree that
// were taken since then.
func (j *Journal) Undo() {
	for _, c := range slices.Backward(j.before) {
		if c.inserted {
			c.at.kids = slices.Delete(c.at.kids, c.item, c.item+1)
		} else {
			*c.at = c.was
		}
	}
	j.Keep()
}

// Additions calls yield for each `add` operation (RFC 6902) that changes the original tree
// into the current one. The operations apply in this order: additions to existing items come
// before the insertions that shift them. No path names an existing member, unless that is null
// or []. The path is valid only during the call.
func (n *Node) Additions(yield func(path []byte, value *Node)) {
	n.yieldAdditions(make([]byte, 0, 256), yield)
}

// yieldAdditions builds all paths in one buffer, because most of the tree has no additions.
func (n *Node) yieldAdditions(path []byte, yield func([]byte, *Node)) {
	came := 0
	for i := range n.kids {
		kid := &n.kids[i]
		switch {
		case n.kind == Array && kid.IsNew(): // insertions handles it
		case kid.IsNew():
			yield(appendEscaped(append(path, '/'), kid.name), kid)
		case n.kind == Object && len(kid.kids) > 0:
			kid.yieldAdditions(appendEscaped(append(path, '/'), kid.name), yield)
		case len(kid.kids) > 0:
			kid.yieldAdditions(strconv.AppendInt(append(path, '/'), int64(came), 10), yield)
			fallthrough
		default:
			came++
		}
	}
	if n.kind == Array && came < len(n.kids) {
		n.yieldInsertions(path, came, yield)
	}
}

// yieldInsertions yields the added items in ascending order, each with its final index, or "-"
// after all original items.
func (n *Node) yieldInsertions(path []byte, came int, yield func([]byte, *Node)) {
	for i := range n.kids {
		switch {
		case !n.kids[i].IsNew():
			came--
		case came == 0:
			yield(append(path, "/-"...), &n.kids[i])
		default:
			yield(strconv.AppendInt(append(path, '/'), int64(i), 10), &n.kids[i])
		}
	}
}

// AddedSize returns the approximate size of the JSON that [Node.Additions] yields, in bytes.
func (n *Node) AddedSize() int {
	if n.IsNew() {
		return n.Size()
	}
	size := 0
	for i := range n.kids {
		size += n.kids[i].AddedSize()
	}
	return size
}

func appendEscaped(dst []byte, name string) []byte {
	plain := 0
	for plain < len(name) && name[plain] != '~' && name[plain] != '/' {
		plain++
	}
	dst = append(dst, name[:plain]...)
	for i := plain; i < len(name); i++ {
		switch b := name[i]; b {
		case '~':
			dst = append(dst, "~0"...)
		case '/':
			dst = append(dst, "~1"...)
		default:
			dst = append(dst, b)
		}
	}
	return dst
}

// Escape escapes a name as a reference token of a JSON Pointer (RFC 6901, section 3).
func Escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// AppendWithAdditions appends the value's JSON with all additions inside it. Values without
// additions keep their bytes.
func (n *Node) AppendWithAdditions(dst []byte) []byte {
	if n.IsNew() || n.AddedSize() == 0 {
		return n.AppendTo(dst)
	}
	return n.appendKids(dst, (*Node).AppendWithAdditions)
}
