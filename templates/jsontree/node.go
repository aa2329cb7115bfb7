// SPDX-License-Identifier: Apache-2.0

// Package jsontree represents JSON as it was received. It parses a value only when the
// caller reads it, and keeps the bytes of all other values. A tree records the values
// that were added to it, so that these can be written as RFC 6902 operations without
// comparing two documents.
//
// A tree belongs to one goroutine, because reading it may parse more of it. Only a
// tree on which [Node.Seal] was called may be shared, and then only for reading.
package jsontree

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of a JSON value, as [Node.Kind] returns them.
const (
	Null   = jsontext.KindNull
	False  = jsontext.KindFalse
	True   = jsontext.KindTrue
	String = jsontext.KindString
	Number = jsontext.KindNumber
	Object = jsontext.KindBeginObject
	Array  = jsontext.KindBeginArray
)

// Node is one JSON value, with its name if it is an object's member.
type Node struct {
	name  string // unescaped
	text  string // the value's JSON; "" for a value that was built here
	kids  []Node // members or items
	kind  jsontext.Kind
	open  bool // kids is set
	added addition

	escaped bool   // text is a string with a backslash
	came    uint32 // how many of the kids are in text, see [Verifier]
}

// addition reports whether a node was added. It is one byte, because a pod has many nodes.
type addition uint8

const (
	original addition = iota
	added
	addedEarlier // before the tree was copied
	tentative    // see [Journal.Tentative]
)

// Name returns a member's name, unescaped.
func (n *Node) Name() string { return n.name }

// Text returns a JSON string.
func Text(s string) Node {
	if isPlain(s) {
		return Node{kind: String, text: `"` + s + `"`}
	}
	quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\uFFFD"))
	return Node{kind: String, text: string(quoted), escaped: bytes.IndexByte(quoted, '\\') >= 0}
}

// Int returns a JSON number.
func Int(i int64) Node { return Node{kind: Number, text: strconv.FormatInt(i, 10)} }

// Uint returns a JSON number.
func Uint(u uint64) Node { return Node{kind: Number, text: strconv.FormatUint(u, 10)} }

// Bool returns true or false.
func Bool(b bool) Node {
	if b {
		return Node{kind: True, text: "true"}
	}
	return Node{kind: False, text: "false"}
}

// Members returns an object with these members, in this order.
func Members(members ...Node) Node { return Node{kind: Object, open: true, kids: members} }

// Field returns a member for [Members].
func Field(name string, value Node) Node {
	value.name = name
	return value
}

// Rename sets the node's name, for [Members].
func (n *Node) Rename(name string) { n.name = name }

// Items returns an array.
func Items(items ...Node) Node { return Node{kind: Array, open: true, kids: items} }

// Kind returns the JSON kind, or 0 for a nil node.
func (n *Node) Kind() jsontext.Kind {
	if n == nil {
		return 0
	}
	return n.kind
}

// Seal opens the whole tree and stores its JSON. It is for values that are used repeatedly and
// never added to. A sealed tree may be shared.
func (n *Node) Seal() {
	n.openAll()
	n.text = string(n.AppendTo(nil))
}

// Get returns an object's member with this name. It returns nil if n is nil or not an object,
// or if the member is absent or null, which the API server treats alike.
func (n *Node) Get(name string) *Node {
	if m := n.findMember(name); m != nil && m.kind != Null {
		return m
	}
	return nil
}

// At follows names from object to object, see [Node.Get].
func (n *Node) At(names ...string) *Node {
	for _, name := range names {
		n = n.Get(name)
	}
	return n
}

// findMember is on the hot path, so it calls no other function.
func (n *Node) findMember(name string) *Node {
	if n == nil || n.kind != Object {
		return nil
	}
	if !n.open {
		n.openKids()
	}
	kids := n.kids
	for i := len(kids) - 1; i >= 0; i-- {
		if kid := &kids[i]; len(kid.name) == len(name) && kid.name == name {
			return kid
		}
	}
	return nil
}

// Members returns an object's members in order. A name may occur twice.
func (n *Node) Members() []Node { return n.kidsOfKind(Object) }

// Items returns an array's items. Pointers to them are valid until the next [Journal.Insert].
func (n *Node) Items() []Node { return n.kidsOfKind(Array) }

func (n *Node) kidsOfKind(of jsontext.Kind) []Node {
	if n == nil || n.kind != of {
		return nil
	}
	if !n.open {
		n.openKids()
	}
	return n.kids
}

// Text returns the string, unescaped, or "" if the value is not a string.
func (n *Node) Text() string {
	switch {
	case n == nil || n.kind != String:
		return ""
	case !n.escaped:
		return n.text[1 : len(n.text)-1]
	}
	return unquoteString(n.text)
}

// IsText reports whether the node is the string s.
func (n *Node) IsText(s string) bool {
	switch {
	case n == nil || n.kind != String:
		return false
	case !n.escaped:
		return n.text[1:len(n.text)-1] == s
	}
	return len(s) < len(n.text)-len(`""`) && n.Text() == s // an escape is longer than its character
}

// SameText reports whether both nodes are the same string. Equal strings usually have equal
// JSON.
func (n *Node) SameText(other *Node) bool {
	switch {
	case n == nil || other == nil || n.kind != String || other.kind != String:
		return false
	case n.text == other.text:
		return true
	}
	return (n.escaped || other.escaped) && other.IsText(n.Text())
}

// Added reports whether the node was added to the tree by [Journal.Add] or [Journal.Insert].
func (n *Node) Added() bool { return n != nil && n.added == added }

// IsNew reports whether the original tree lacks the value: it was added to this tree, or to the one that this is a copy of.
func (n *Node) IsNew() bool { return n != nil && n.added != original }

// HasNew reports whether the original tree lacks the value or a part of it. It parses no more of the tree.
func (n *Node) HasNew() bool {
	if n == nil || n.added != original {
		return n != nil
	}
	for i := range n.kids {
		if n.kids[i].HasNew() {
			return true
		}
	}
	return false
}

// AppendTo appends the value's JSON: the original bytes if the value was parsed. Only
// [Node.AppendWithAdditions] includes additions inside a parsed node.
func (n *Node) AppendTo(dst []byte) []byte {
	if n.text != "" {
		return append(dst, n.text...)
	}
	return n.appendKids(dst, (*Node).AppendTo)
}

// appendKids appends the value from its members or items.
func (n *Node) appendKids(dst []byte, appendKid func(*Node, []byte) []byte) []byte {
	closing := byte(']')
	switch n.kind {
	case Object:
		dst, closing = append(dst, '{'), '}'
	case Array:
		dst = append(dst, '[')
	default:
		return append(dst, "null"...)
	}
	for i := range n.kids {
		if i > 0 {
			dst = append(dst, ',')
		}
		if n.kind == Object {
			dst = append(AppendQuoted(dst, n.kids[i].name), ':')
		}
		dst = appendKid(&n.kids[i], dst)
	}
	return append(dst, closing)
}

// AppendQuoted appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	if isPlain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// Size returns the approximate size of what [Node.AppendTo] appends.
func (n *Node) Size() int {
	if n.text != "" {
		return len(n.text)
	}
	size := 2
	for i := range n.kids {
		size += len(n.kids[i].name) + len(`"":,`) + n.kids[i].Size()
	}
	return size
}

// String returns the value's JSON, for messages and tests.
func (n *Node) String() string {
	switch {
	case n == nil:
		return ""
	case n.text != "":
		return n.text
	}
	return string(n.AppendTo(nil))
}

// Arena is memory for the nodes of one tree and of everything that is added to it. It is
// reused when its [Parser] parses the next document. A nil Arena uses the heap.
type Arena struct {
	slab      []Node
	least     int // minimum number of nodes to allocate
	elsewhere int // capacity of previous slabs
	texts     []byte
}

// maxSlab is the largest number of nodes to allocate in advance, 256 KiB. After a long list,
// more are rarely needed.
const maxSlab = 4096

// Nodes returns an empty slice with this capacity.
func (a *Arena) Nodes(room int) []Node {
	if a == nil {
		return make([]Node, 0, room)
	}
	first := len(a.slab)
	if room > cap(a.slab)-first { // existing nodes refer to the old slab
		a.elsewhere += cap(a.slab)
		a.slab, first = make([]Node, 0, max(room, min(2*cap(a.slab), maxSlab), a.least)), 0
	}
	a.slab = a.slab[:first+room]
	return a.slab[first : first : first+room]
}

// Set appends a member to an object that is being built. It does not count as an addition.
func (n *Node) Set(name string, value Node) { n.kids = append(n.kids, Field(name, value)) }

// Append appends an item to an array that is being built. It does not count as an addition.
func (n *Node) Append(value Node) { n.kids = append(n.kids, value) }

// Clone returns a deep copy that may be added to.
func (n *Node) Clone() Node {
	c := *n
	n.openKids()
	if n.open {
		c.text, c.open = "", true
	}
	c.kids = slices.Clone(n.kids)
	for i := range c.kids {
		c.kids[i] = n.kids[i].Clone()
	}
	return c
}
