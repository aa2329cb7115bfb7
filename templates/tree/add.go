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
	value.added = true
	if m := n.member(name); m != nil {
		if m.kind != Null && (m.kind != Array || len(m.Items()) > 0) {
			return nil
		}
		*m = value
		return m
	}
	n.members = append(n.members, Field(name, value))
	return &n.members[len(n.members)-1].Node
}

// Set puts a member at the end of an object that is being put together; it
// counts as no addition.
func (n *Node) Set(name string, value Node) { n.members = append(n.members, Field(name, value)) }

// Append puts an item at the end of an array that is being put together; it
// counts as no addition.
func (n *Node) Append(value Node) { n.items = append(n.items, value) }

// With is a copy of an object in which a member has that value; the rest is
// shared with the original.
func (n *Node) With(name string, value Node) Node {
	c := Node{kind: Object, open: true, members: slices.Clone(n.Members())}
	if m := c.member(name); m != nil {
		*m = value
	} else {
		c.Set(name, value)
	}
	return c
}

// Without is a copy of an object that lacks a member; the rest is shared with
// the original.
func (n *Node) Without(name string) Node {
	c := Node{kind: Object, open: true, members: slices.Clone(n.Members())}
	c.members = slices.DeleteFunc(c.members, func(m Member) bool { return string(m.name) == name })
	return c
}

// Clone is a deep copy that may be added to.
func (n *Node) Clone() Node {
	c := *n
	n.fill()
	if n.open {
		c.text, c.open = nil, true
	}
	c.members, c.items = slices.Clone(n.members), slices.Clone(n.items)
	for i := range c.members {
		c.members[i].Node = n.members[i].Clone()
	}
	for i := range c.items {
		c.items[i] = n.items[i].Clone()
	}
	return c
}

// Insert puts a new item before item i of an array; i may be the array's length.
func (n *Node) Insert(i int, value Node) {
	n.fill()
	value.added = true
	n.items = slices.Insert(n.items, i, value)
}

// Additions calls yield for each operation `add` (RFC 6902) that makes the tree
// as it came into the tree as it is, in an order in which they apply: what goes
// into existing items comes before the insertions that shift them. No path
// names a member that is there already, unless that member is null or [].
func (n *Node) Additions(yield func(path string, value *Node)) {
	n.additions(nil, yield)
}

// additions writes the path into one buffer, for most of the tree has nothing to tell.
func (n *Node) additions(path []byte, yield func(string, *Node)) {
	if !n.open {
		return
	}
	for i := range n.members {
		m := &n.members[i]
		if !m.added && !m.open {
			continue
		}
		child := appendEscaped(append(path, '/'), m.name)
		if m.added {
			yield(string(child), &m.Node)
		} else {
			m.additions(child, yield)
		}
	}
	came := 0
	for i := range n.items {
		if !n.items[i].added {
			if n.items[i].open {
				n.items[i].additions(strconv.AppendInt(append(path, '/'), int64(came), 10), yield)
			}
			came++
		}
	}
	n.insertions(path, came, yield)
}

// insertions tells the added items in ascending order, each by its final index,
// and by "-" when all that came stand before it.
func (n *Node) insertions(path []byte, came int, yield func(string, *Node)) {
	for i := range n.items {
		switch {
		case !n.items[i].added:
			came--
		case came == 0:
			yield(string(append(path, "/-"...)), &n.items[i])
		default:
			yield(string(strconv.AppendInt(append(path, '/'), int64(i), 10)), &n.items[i])
		}
	}
}

// AddedSize is about how many bytes of JSON [Node.Additions] has to tell.
func (n *Node) AddedSize() int {
	if !n.open {
		return 0
	}
	size := 0
	for i := range n.members {
		size += n.members[i].addedSize()
	}
	for i := range n.items {
		size += n.items[i].addedSize()
	}
	return size
}

func (n *Node) addedSize() int {
	if n.added {
		return n.Size()
	}
	return n.AddedSize()
}

func appendEscaped(dst, name []byte) []byte {
	for _, b := range name {
		switch b {
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
