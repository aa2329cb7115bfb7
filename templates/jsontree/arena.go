// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"strings"
	"unsafe"
)

// textRoom is the allocation unit for strings, in bytes. Longer strings get their own
// allocation.
const textRoom = 4 << 10

// Text returns a JSON string that consists of the parts.
func (a *Arena) Text(parts ...string) Node {
	size, plain := len(`""`), true
	for _, part := range parts {
		size += len(part)
		plain = plain && isPlain(part)
	}
	if a == nil || !plain || size > textRoom/4 {
		return Text(strings.Join(parts, ""))
	}
	if size > cap(a.texts)-len(a.texts) { // existing nodes refer to the old bytes
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

// With returns a copy of an object in which a member has another value. It shares the rest
// with the original.
func (a *Arena) With(n *Node, name string, value Node) Node {
	members := n.Members()
	c := Node{kind: Object, open: true, kids: append(a.Nodes(len(members)+1), members...)}
	if m := c.findMember(name); m != nil {
		*m = Field(name, value)
	} else {
		c.Set(name, value)
	}
	return c
}

// Without returns a copy of an object that lacks a member. It shares the rest with the
// original.
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
