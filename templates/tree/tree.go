// SPDX-License-Identifier: Apache-2.0

// Package tree holds JSON as it came: a value is parsed as far as somebody
// looks into it and no further, what nobody looks at keeps its bytes, and the
// tree remembers what was added to it, so that the additions can be told as
// RFC 6902 operations without comparing two documents.
//
// A tree belongs to one goroutine, for looking into it may open it further. Only
// a tree on which [Node.Seal] was called may be shared, and then only for reading.
package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

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

// openLevels is how deep [Parse] opens the tree while it reads the text
// anyway: pod, metadata and spec, the containers, and a container's fields.
// Opening them later would read the same bytes again.
const openLevels = 4

// Node is one JSON value.
type Node struct {
	text    []byte // the value's JSON; nil for a value that was put together here
	members []Member
	items   []Node
	kind    jsontext.Kind
	open    bool // members or items are filled in
	added   bool
}

// Member is one name and value of an object.
type Member struct {
	name []byte // unescaped
	Node
}

// Name is the member's name, unescaped.
func (m *Member) Name() string { return string(m.name) }

// Parse reads one JSON text (RFC 8259, valid UTF-8). The tree keeps parts of
// text: it must not be changed afterwards. Where an object has a name twice the
// last one counts, as it does for the API server and for its JSON Patch library.
func Parse(text []byte) (*Node, error) {
	d := decoder{text: text, dec: newDecoder(text)}
	n, err := d.value(openLevels)
	if err != nil {
		return nil, err
	}
	if _, err := d.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("after the JSON value, at byte %d: more text", d.dec.InputOffset())
	}
	return &n, nil
}

func newDecoder(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
}

// decoder walks text once; offsets, not the decoder's own buffer, say where a
// value stands, so the nodes alias text and nothing else.
type decoder struct {
	text []byte
	dec  *jsontext.Decoder
}

func (d *decoder) value(levels int) (Node, error) {
	kind := d.dec.PeekKind()
	before := d.dec.InputOffset()
	if levels == 0 || kind != Object && kind != Array {
		if err := d.dec.SkipValue(); err != nil {
			return Node{}, err
		}
		return Node{kind: kind, text: d.since(before)}, nil
	}
	n := Node{kind: kind, open: true}
	if _, err := d.dec.ReadToken(); err != nil {
		return Node{}, err
	}
	start := d.dec.InputOffset() - 1
	for next := d.dec.PeekKind(); next != '}' && next != ']'; next = d.dec.PeekKind() {
		if err := d.child(&n, levels-1); err != nil {
			return Node{}, err
		}
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return Node{}, err
	}
	n.text = d.text[start:d.dec.InputOffset():d.dec.InputOffset()]
	return n, nil
}

func (d *decoder) child(n *Node, levels int) error {
	if n.kind == Array {
		item, err := d.value(levels)
		n.items = append(n.items, item)
		return err
	}
	before := d.dec.InputOffset()
	if err := d.dec.SkipValue(); err != nil {
		return err
	}
	name, err := unquote(d.since(before))
	if err != nil {
		return err
	}
	if string(name) == "managedFields" { // a third of the bytes, and nobody's business here
		levels = 0
	}
	value, err := d.value(levels)
	n.members = append(n.members, Member{name: name, Node: value})
	return err
}

// since is the token or value that was just read, without what separates it
// from the one before.
func (d *decoder) since(before int64) []byte {
	end := d.dec.InputOffset()
	return bytes.TrimLeft(d.text[before:end:end], " \t\r\n,:")
}

// unquote gives the text between the quotes, and copies only where there are escapes.
func unquote(quoted []byte) ([]byte, error) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	return jsontext.AppendUnquote(nil, quoted)
}

// Text makes a JSON string.
func Text(s string) Node {
	quoted, err := jsontext.AppendQuote(nil, s)
	if err != nil { // invalid UTF-8: quoted holds it with U+FFFD in its place
		quoted, _ = jsontext.AppendQuote(nil, string(bytes.ToValidUTF8([]byte(s), []byte("\uFFFD"))))
	}
	return Node{kind: String, text: quoted}
}

// Int makes a JSON number.
func Int(i int64) Node { return Node{kind: Number, text: strconv.AppendInt(nil, i, 10)} }

// Uint makes a JSON number.
func Uint(u uint64) Node { return Node{kind: Number, text: strconv.AppendUint(nil, u, 10)} }

// Bool makes true or false.
func Bool(b bool) Node {
	if b {
		return Node{kind: True, text: []byte("true")}
	}
	return Node{kind: False, text: []byte("false")}
}

// Members makes an object of what is in members, in that order.
func Members(members ...Member) Node {
	return Node{kind: Object, open: true, members: members}
}

// Field makes a member for [Members].
func Field(name string, value Node) Member { return Member{name: []byte(name), Node: value} }

// Items makes an array.
func Items(items ...Node) Node { return Node{kind: Array, open: true, items: items} }

// Kind is the JSON kind; 0 for a nil node.
func (n *Node) Kind() jsontext.Kind {
	if n == nil {
		return 0
	}
	return n.kind
}

// fill opens the node by one level. The text was checked by [Parse], so what
// goes wrong here is a mistake of this package.
func (n *Node) fill() {
	if n.open || n.kind != Object && n.kind != Array {
		return
	}
	d := decoder{text: n.text, dec: newDecoder(n.text)}
	full, err := d.value(1)
	if err != nil {
		panic("tree: a checked text does not parse: " + err.Error())
	}
	n.members, n.items, n.open = full.members, full.items, true
}

// openAll opens the whole tree, after which reading it changes nothing.
func (n *Node) openAll() {
	n.fill()
	for i := range n.members {
		n.members[i].openAll()
	}
	for i := range n.items {
		n.items[i].openAll()
	}
}

// Seal opens the whole tree and writes its JSON once, for a value that is used
// again and again and never added to. A sealed tree may be shared.
func (n *Node) Seal() {
	n.openAll()
	n.text = n.AppendTo(nil)
}

// Get is an object's member of that name. It is nil where n is nil or no
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

func (n *Node) member(name string) *Node {
	if n == nil || n.kind != Object {
		return nil
	}
	n.fill()
	for i := len(n.members) - 1; i >= 0; i-- {
		if string(n.members[i].name) == name {
			return &n.members[i].Node
		}
	}
	return nil
}

// Members are an object's members in their order; a name may stand there twice.
func (n *Node) Members() []Member {
	if n == nil || n.kind != Object {
		return nil
	}
	n.fill()
	return n.members
}

// Items are an array's items. Pointers into it hold until the next [Node.Insert].
func (n *Node) Items() []Node {
	if n == nil || n.kind != Array {
		return nil
	}
	n.fill()
	return n.items
}

// Text is a string's text, and "" for anything else.
func (n *Node) Text() string {
	if n == nil || n.kind != String {
		return ""
	}
	s, err := unquote(n.text)
	if err != nil {
		panic("tree: a checked string does not unquote: " + err.Error())
	}
	return string(s)
}

// IsText says whether the node is the string s.
func (n *Node) IsText(s string) bool {
	if n == nil || n.kind != String {
		return false
	}
	if inner := n.text[1 : len(n.text)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == s
	}
	return n.Text() == s
}

// SameText says whether both nodes are the same string.
func (n *Node) SameText(other *Node) bool {
	if n == nil || other == nil || n.kind != String || other.kind != String {
		return false
	}
	if bytes.Equal(n.text, other.text) {
		return true
	}
	if bytes.IndexByte(n.text, '\\') < 0 && bytes.IndexByte(other.text, '\\') < 0 {
		return false
	}
	return n.Text() == other.Text()
}

// Added says whether the node was added to the tree by [Node.Add] or [Node.Insert].
func (n *Node) Added() bool { return n != nil && n.added }

// AppendTo writes the value's JSON: the text as it came where it came as text.
// Additions inside a node that came as text are told by [Node.Additions] only.
func (n *Node) AppendTo(dst []byte) []byte {
	if n.text != nil {
		return append(dst, n.text...)
	}
	switch n.kind {
	case Object:
		dst = append(dst, '{')
		for i := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst, _ = jsontext.AppendQuote(dst, n.members[i].name)
			dst = n.members[i].AppendTo(append(dst, ':'))
		}
		return append(dst, '}')
	case Array:
		dst = append(dst, '[')
		for i := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = n.items[i].AppendTo(dst)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

// Size is about how many bytes [Node.AppendTo] writes.
func (n *Node) Size() int {
	if n.text != nil {
		return len(n.text)
	}
	size := 2
	for i := range n.members {
		size += len(n.members[i].name) + 4 + n.members[i].Size()
	}
	for i := range n.items {
		size += 1 + n.items[i].Size()
	}
	return size
}

// String is the value's JSON, for messages and tests.
func (n *Node) String() string {
	if n == nil {
		return ""
	}
	return string(n.AppendTo(nil))
}
