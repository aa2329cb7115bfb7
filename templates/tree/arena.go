// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"strings"
	"unsafe"
)

// Arena is memory for the nodes of one tree and of all that is made to be added
// to it, given back as a whole when its [Parser] parses the next text. Nil has
// the runtime give memory.
type Arena struct {
	slab      []Node
	least     int // nodes to make room for at once
	elsewhere int // nodes that there is room for in what was the slab before
	texts     []byte
}

// textRoom is the room that is made for texts at once, in bytes; longer ones get their own.
const textRoom = 4 << 10

// Text makes a JSON string of the parts one after the other.
func (a *Arena) Text(parts ...string) Node {
	size, plain := len(`""`), true
	for _, part := range parts {
		size += len(part)
		plain = plain && isPlain(part)
	}
	if a == nil || !plain || size > textRoom/4 {
		return Text(strings.Join(parts, ""))
	}
	if size > cap(a.texts)-len(a.texts) { // the old ones belong to their nodes now
		a.texts = make([]byte, 0, textRoom)
	}
	begin := len(a.texts)
	a.texts = append(a.texts, '"')
	for _, part := range parts {
		a.texts = append(a.texts, part...)
	}
	a.texts = append(a.texts, '"')
	return Node{kind: String, text: unsafe.String(&a.texts[begin], size)}
}

// maxSlab is the most nodes to make room for before they are needed, 256 KiB: what
// comes after a long list needs no room like that.
const maxSlab = 4096

// Nodes is a list of no nodes that has room for so many.
func (a *Arena) Nodes(room int) []Node {
	if a == nil {
		return make([]Node, 0, room)
	}
	first := len(a.slab)
	if room > cap(a.slab)-first { // the old slab belongs to its nodes now
		a.elsewhere += cap(a.slab)
		a.slab, first = make([]Node, 0, max(room, min(2*cap(a.slab), maxSlab), a.least)), 0
	}
	a.slab = a.slab[:first+room]
	return a.slab[first : first : first+room]
}

// With is a copy of an object in which a member has that value; the rest is
// shared with the original.
func (a *Arena) With(n *Node, name string, value Node) Node {
	members := n.Members()
	c := Node{kind: Object, open: true, kids: append(a.Nodes(len(members)+1), members...)}
	if m := c.member(name); m != nil {
		*m = Field(name, value)
	} else {
		c.Set(name, value)
	}
	return c
}

// Without is a copy of an object that lacks a member; the rest is shared with
// the original.
func (a *Arena) Without(n *Node, name string) Node {
	members := n.Members()
	c := Members(a.Nodes(len(members))...)
	for i := range members {
		if members[i].name != name {
			c.kids = append(c.kids, members[i])
		}
	}
	return c
}
