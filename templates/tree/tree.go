// SPDX-License-Identifier: Apache-2.0

// Package tree represents JSON as it was received. It parses a value only when the
// caller reads it, and keeps the bytes of all other values. A tree records the values
// that were added to it, so that these can be written as RFC 6902 operations without
// comparing two documents.
//
// A tree belongs to one goroutine, because reading it may parse more of it. Only a
// tree on which [Node.Seal] was called may be shared, and then only for reading.
package tree

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of a JSON value, as [Node.Kind] gives them.
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
	text  string // the value's JSON; "" for a value that was put together here
	kids  []Node // members or items
	kind  jsontext.Kind
	open  bool // kids are filled in
	added bool

	escaped bool   // text is a string's and has a backslash
	came    uint32 // how many of the kids the text has, see [Verifier]
}

// Name is a member's name, unescaped.
func (n *Node) Name() string { return n.name }

// Text makes a JSON string.
func Text(s string) Node {
	if isPlain(s) {
		return Node{kind: String, text: `"` + s + `"`}
	}
	quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\uFFFD"))
	return Node{kind: String, text: string(quoted), escaped: bytes.IndexByte(quoted, '\\') >= 0}
}

// Int makes a JSON number.
func Int(i int64) Node { return Node{kind: Number, text: strconv.FormatInt(i, 10)} }

// Uint makes a JSON number.
func Uint(u uint64) Node { return Node{kind: Number, text: strconv.FormatUint(u, 10)} }

// Bool makes true or false.
func Bool(b bool) Node {
	if b {
		return Node{kind: True, text: "true"}
	}
	return Node{kind: False, text: "false"}
}

// Members makes an object of what is in members, in that order.
func Members(members ...Node) Node { return Node{kind: Object, open: true, kids: members} }

// Field makes a member for [Members].
func Field(name string, value Node) Node {
	value.name = name
	return value
}

// Rename makes the node a member of that name, for [Members].
func (n *Node) Rename(name string) { n.name = name }

// Items makes an array.
func Items(items ...Node) Node { return Node{kind: Array, open: true, kids: items} }

// Kind is the JSON kind; 0 for a nil node.
func (n *Node) Kind() jsontext.Kind {
	if n == nil {
		return 0
	}
	return n.kind
}

// Seal opens the whole tree and writes its JSON once, for a value that is used
// again and again and never added to. A sealed tree may be shared.
func (n *Node) Seal() {
	n.openAll()
	n.text = string(n.AppendTo(nil))
}

// Get is an object's member of that name. It is nil if n is nil or no
// object, and where the member is absent or null, which mean the same to the
// API server.
func (n *Node) Get(name string) *Node {
	if m := n.member(name); m != nil && m.kind != Null {
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

// member is what nearly everything comes down to, so it calls nothing.
func (n *Node) member(name string) *Node {
	if n == nil || n.kind != Object {
		return nil
	}
	if !n.open {
		n.fill()
	}
	kids := n.kids
	for i := len(kids) - 1; i >= 0; i-- {
		if kid := &kids[i]; len(kid.name) == len(name) && kid.name == name {
			return kid
		}
	}
	return nil
}

// Members are an object's members in their order; a name may stand there twice.
func (n *Node) Members() []Node { return n.children(Object) }

// Items are an array's items. Pointers into it hold until the next [Log.Insert].
func (n *Node) Items() []Node { return n.children(Array) }

func (n *Node) children(of jsontext.Kind) []Node {
	if n == nil || n.kind != of {
		return nil
	}
	if !n.open {
		n.fill()
	}
	return n.kids
}

// Text is a string's text, and "" for anything else.
func (n *Node) Text() string {
	switch {
	case n == nil || n.kind != String:
		return ""
	case !n.escaped:
		return n.text[1 : len(n.text)-1]
	}
	return unquote(n.text)
}

// IsText reports whether the node is the string s.
func (n *Node) IsText(s string) bool {
	switch {
	case n == nil || n.kind != String:
		return false
	case !n.escaped:
		return n.text[1:len(n.text)-1] == s
	}
	return len(s) < len(n.text)-len(`""`) && n.Text() == s // an escape is longer than what it stands for
}

// SameText reports whether both nodes are the same string. Nearly all that are the same are written the same.
func (n *Node) SameText(other *Node) bool {
	switch {
	case n == nil || other == nil || n.kind != String || other.kind != String:
		return false
	case n.text == other.text:
		return true
	}
	return (n.escaped || other.escaped) && other.IsText(n.Text())
}

// Added reports whether the node was added to the tree by [Log.Add] or [Log.Insert].
func (n *Node) Added() bool { return n != nil && n.added }

// AppendTo writes the value's JSON: the text as received where it came as text.
// Additions inside a node that came as text are in [Node.AppendWithAdditions] only.
func (n *Node) AppendTo(dst []byte) []byte {
	if n.text != "" {
		return append(dst, n.text...)
	}
	return n.appendKids(dst, (*Node).AppendTo)
}

// appendKids writes the value from its members or items.
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

// AppendQuoted writes a JSON string; bytes that are no UTF-8 become U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	if isPlain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// Size is about how many bytes [Node.AppendTo] writes.
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

// String is the value's JSON, for messages and tests.
func (n *Node) String() string {
	switch {
	case n == nil:
		return ""
	case n.text != "":
		return n.text
	}
	return string(n.AppendTo(nil))
}

// Arena is memory for the nodes of one tree and of all that is made to be added
// to it, given back as a whole when its [Parser] parses the next text. Nil has
// the runtime give memory.
type Arena struct {
	slab      []Node
	least     int // nodes to make room for at once
	elsewhere int // nodes that there is room for in what was the slab before
	texts     []byte
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
