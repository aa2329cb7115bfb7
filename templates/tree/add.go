// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"slices"
	"strconv"
	"strings"
)

// Add puts a new member at the end of an object and returns it. Null and [] may
// be given content this way, for both say that nothing is there; a member that
// says anything else is never touched: Add then returns nil.
func (n *Node) Add(name string, value Node) *Node {
	value.added, value.name = true, name
	if m := n.member(name); m != nil {
		if m.kind != Null && (m.kind != Array || len(m.Items()) > 0) {
			return nil
		}
		*m = value
		return m
	}
	n.kids = append(n.kids, value)
	return &n.kids[len(n.kids)-1]
}

// Set puts a member at the end of an object that is being put together; it
// counts as no addition.
func (n *Node) Set(name string, value Node) { n.kids = append(n.kids, Field(name, value)) }

// Append puts an item at the end of an array that is being put together; it
// counts as no addition.
func (n *Node) Append(value Node) { n.kids = append(n.kids, value) }

// Clone is a deep copy that may be added to.
func (n *Node) Clone() Node {
	c := *n
	n.fill()
	if n.open {
		c.text, c.open = "", true
	}
	c.kids = slices.Clone(n.kids)
	for i := range c.kids {
		c.kids[i] = n.kids[i].Clone()
	}
	return c
}

// Insert puts a new item before item i of an array; i may be the array's length.
func (n *Node) Insert(i int, value Node) {
	n.fill()
	value.added = true
	n.kids = slices.Insert(n.kids, i, value)
}

// Additions calls yield for each operation `add` (RFC 6902) that makes the tree
// as it came into the tree as it is, in an order in which they apply: what goes
// into existing items comes before the insertions that shift them. No path
// names a member that is there already, unless that member is null or [].
func (n *Node) Additions(yield func(path string, value *Node)) {
	n.additions(make([]byte, 0, 128), yield)
}

// additions writes the path into one buffer, for most of the tree has nothing to tell.
func (n *Node) additions(path []byte, yield func(string, *Node)) {
	came := 0
	for i := range n.kids {
		kid := &n.kids[i]
		switch {
		case n.kind == Array && kid.added: // comes below
		case kid.added:
			yield(string(appendEscaped(append(path, '/'), kid.name)), kid)
		case n.kind == Object && kid.open:
			kid.additions(appendEscaped(append(path, '/'), kid.name), yield)
		case kid.open:
			kid.additions(strconv.AppendInt(append(path, '/'), int64(came), 10), yield)
			fallthrough
		default:
			came++
		}
	}
	if n.kind == Array && came < len(n.kids) {
		n.insertions(path, came, yield)
	}
}

// insertions tells the added items in ascending order, each by its final index,
// and by "-" when all that came stand before it.
func (n *Node) insertions(path []byte, came int, yield func(string, *Node)) {
	for i := range n.kids {
		switch {
		case !n.kids[i].added:
			came--
		case came == 0:
			yield(string(append(path, "/-"...)), &n.kids[i])
		default:
			yield(string(strconv.AppendInt(append(path, '/'), int64(i), 10)), &n.kids[i])
		}
	}
}

// AddedSize is about how many bytes of JSON [Node.Additions] has to tell.
func (n *Node) AddedSize() int {
	if n.added {
		return n.Size()
	}
	size := 0
	for i := range n.kids {
		size += n.kids[i].AddedSize()
	}
	return size
}

func appendEscaped(dst []byte, name string) []byte {
	for i := range len(name) {
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

// Escape makes a name a JSON Pointer's reference token (RFC 6901 section 3).
func Escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}
