// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Parser parses one text after another into the same memory, which is most of
// what a tree costs. Its zero value may be used.
//
// It checks and opens in one pass; a library checks in one and is asked for what
// is wanted in another. What is JSON that library says, see FuzzParse.
//
// A value's members and items come to lie next to each other in the arena.
type Parser struct {
	Arena
	lexer

	// Env has the environment of containers opened too, for who adds to it.
	Env bool

	depth   int
	values  int
	allowed int // values, now
	most    int // and at all
	room    Room
	denied  error
	pending []Node // of the objects and lists that are not at their end yet
}

// bytesPerNode is about how many bytes of a pod there are to one node that is opened.
const bytesPerNode = 32

// spare is how many nodes may be added to each object and list that is opened
// before they all have to move; nothing that is empty has to.
const spare = 2

// podLevels is how deep a pod is opened while its text is read anyway: pod,
// metadata and spec, the containers, and a container's fields.
const podLevels = 4

// maxDepth is how deep values may nest, as in encoding/json.
const maxDepth = 10_000

// maxValues is how many values a text may have: a node takes 64 bytes, so tiny ones
// take many times their text. A pod of the 3 MiB that an API server takes has fewer
// unless it is made of nothing but {}.
const maxValues = 1 << 20

// FewValues is how many values a text may have before a [Room] is asked, and how many more it
// is asked for at a time.
const FewValues = 4096

// Room reports whether there is room for so many more values.
type Room interface{ Values(n int) bool }

// ErrNoRoom says that the text has more values than a [Room] had room for.
var ErrNoRoom = errors.New("it has more values than there is room for")

// ErrTooManyValues says that a text is JSON, or may be, but has too many values.
var ErrTooManyValues = errors.New("too many values")

// Parse reads one JSON text (RFC 8259, valid UTF-8), which has a pod that many
// levels deep inside. The tree, its texts and its names are parts of that text,
// and the tree holds until the next call.
func (s *Parser) Parse(text string, levels int) (*Node, error) {
	return s.ParseIn(nil, maxValues, text, levels)
}

// ParseIn is Parse of a text that has so many values at most, within the room that there is if
// room is not nil.
func (s *Parser) ParseIn(room Room, most int, text string, levels int) (*Node, error) {
	s.room, s.most, s.allowed, s.denied = room, most, min(FewValues, most), nil
	s.text, s.depth, s.values, s.pending, s.slab, s.elsewhere = text, 0, 0, s.pending[:0], s.slab[:0], 0
	s.texts = s.texts[:0]
	s.least = min(len(text)/bytesPerNode, 256)
	end := s.value("", s.blank(0), levels+podLevels)
	s.room = nil
	switch {
	case s.denied != nil:
		return nil, s.denied
	case end < 0 || s.blank(end) < len(text):
		return nil, whyNotJSON(text)
	}
	return &s.pending[0], nil
}

// whyNotJSON has a library say what is wrong.
func whyNotJSON(text string) error {
	if err := json.Unmarshal([]byte(text), new(jsontext.Value), jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	return errors.New("it is not JSON")
}

// Kept is how many bytes are kept until the next text, beside the last one.
func (s *Parser) Kept() int {
	return (cap(s.pending)+cap(s.slab)+s.elsewhere)*int(unsafe.Sizeof(Node{})) + cap(s.texts)
}

// levelsOf is how deep a member is opened, where its object may be opened that
// deep: what nobody looks at not at all, what nearly every template adds to whole.
func (s *Parser) levelsOf(name string, levels int) int {
	switch name {
	case "env":
		switch {
		case levels > 0: // of a pod that is compared as a whole
			return levels + 1
		case s.Env:
			return 2
		}
	case "extra", "groups", "managedFields", "oldObject", "options", "requestKind", "requestResource", "status":
		return 0
	case "volumeMounts":
		return max(levels, 2)
	}
	return levels
}

// value reads the value at i, a member's of that name, into one more pending node, opened
// that many levels deep, and says where it ends, or with -1 that it is none.
func (s *Parser) value(name string, i, levels int) (end int) {
	var kids []Node
	c, open, escaped := s.at(i), false, false
	switch c {
	case '"':
		end, escaped = s.quoted(i)
	case '{', '[':
		if levels = s.levelsOf(name, levels); levels > 0 {
			open = true
			kids, end = s.children(i, levels-1)
		} else {
			end = s.skip(i)
		}
	default:
		end = s.scalar(i)
	}
	if end >= 0 {
		n := s.push(i)
		n.name, n.text, n.kids = name, s.text[i:end], kids
		n.kind, n.open, n.added, n.escaped, n.came = kindOf(c), open, false, escaped, uint32(len(kids))
	}
	return end
}

// scalar checks the value at i, which is no string, and says where it ends, or with -1 that it is none.
func (s *Parser) scalar(i int) (end int) {
	switch s.at(i) {
	case 't':
		return s.word(i, "true")
	case 'f':
		return s.word(i, "false")
	case 'n':
		return s.word(i, "null")
	}
	return s.number(i)
}

// children reads the members or items of the object or list at i, opened that many levels deep.
func (s *Parser) children(i, levels int) (kids []Node, end int) {
	if s.depth++; s.depth > maxDepth {
		return nil, -1
	}
	object, closing, first := s.text[i] == '{', s.text[i]+2, len(s.pending)
	i = s.blank(i + 1)
	for more := s.at(i) != closing; more; {
		if s.values++; s.values > s.allowed && !s.more() {
			return nil, -1
		}
		name := ""
		if object {
			end, escaped := s.quoted(i)
			if end < 0 {
				return nil, -1
			}
			if name = s.text[i+1 : end-1]; escaped {
				name = unquote(s.text[i:end])
			}
			if i = s.colon(end); i < 0 {
				return nil, -1
			}
		}
		if i = s.value(name, i, levels); i < 0 {
			return nil, -1
		}
		i = s.blank(i)
		switch more = s.at(i) == ','; {
		case more:
			i = s.blank(i + 1)
		case s.at(i) != closing:
			return nil, -1
		}
	}
	s.depth--
	return s.take(first), i + 1
}

// skip checks the object or list at i and says where it ends, or with -1 that it is
// none. It makes no nodes and is a loop, as a third of a review is skipped.
func (s *Parser) skip(i int) (end int) {
	var few [32]byte
	within := few[:0] // what closes each object and list that i is in
	for {
		switch c := s.at(i); c {
		case '"':
			i, _ = s.quoted(i)
		case '{', '[':
			if i = s.blank(i + 1); s.at(i) == c+2 && s.depth+len(within) < maxDepth {
				i++
				break
			}
			if within = append(within, c+2); s.depth+len(within) > maxDepth {
				return -1
			}
			if i = s.entry(i, c+2); i < 0 {
				return -1
			}
			continue
		default:
			i = s.scalar(i)
		}
		for { // a value ends at i
			if i < 0 || len(within) == 0 {
				return i
			}
			closing := within[len(within)-1]
			i = s.blank(i)
			if c := s.at(i); c == ',' {
				if i = s.entry(s.blank(i+1), closing); i < 0 {
					return -1
				}
				break
			} else if c != closing {
				return -1
			}
			i, within = i+1, within[:len(within)-1]
		}
	}
}

// entry counts the member or item at i, and says where its value begins, or with -1 that it has no name.
func (s *Parser) entry(i int, closing byte) (value int) {
	if s.values++; s.values > s.allowed && !s.more() {
		return -1
	}
	if closing != '}' {
		return i
	}
	if i, _ = s.quoted(i); i < 0 {
		return -1
	}
	return s.colon(i)
}

// colon reports where a value begins whose name ends at i, or with -1 that there is none.
func (s *Parser) colon(i int) int {
	if s.at(i) != ':' {
		if i = s.skipBlank(i); s.at(i) != ':' {
			return -1
		}
	}
	return s.blank(i + 1)
}

// more makes room for more values.
func (s *Parser) more() bool {
	switch {
	case s.values > s.most:
		s.denied = fmt.Errorf("%w: more than %d", ErrTooManyValues, s.most)
	case s.room == nil:
		s.allowed = s.most
	case s.room.Values(FewValues):
		s.allowed = min(s.allowed+FewValues, s.most)
	default:
		s.denied = ErrNoRoom
	}
	return s.denied == nil
}

// take makes the pending nodes from the first on somebody's members or items.
func (s *Parser) take(first int) (kids []Node) {
	switch n := len(s.pending) - first; {
	case n == 0:
	case n > maxSlab && 2*n > cap(s.pending): // to have them twice takes too much
		s.elsewhere += cap(s.pending)
		kids, s.pending = s.pending[first:], slices.Clone(s.pending[:first])
	case n > maxSlab: // and to keep for them what others lie in too, more
		s.elsewhere += n
		kids, s.pending = slices.Clone(s.pending[first:]), s.pending[:first]
	default:
		kids, s.pending = append(s.Nodes(n+spare), s.pending[first:]...), s.pending[:first]
	}
	return kids
}

// push makes another pending node, for the value at i.
func (s *Parser) push(i int) *Node {
	n := len(s.pending)
	if n == cap(s.pending) { // append grows short slices in small steps
		more := max(8, n)
		if n >= maxSlab { // a very long slice grows in small steps too: assume that the rest has as many values per byte
			more = min(max(maxSlab, n*(len(s.text)-i)/i), s.most+1-n)
		}
		s.pending = slices.Grow(s.pending, more)
	}
	s.pending = s.pending[:n+1]
	return &s.pending[n]
}

// Parse reads one JSON text (RFC 8259, valid UTF-8). The tree has a copy of the
// text, so that may be changed afterwards. Where an object has a name twice the
// last one counts, as it does for the API server and for its JSON Patch library.
func Parse(text []byte) (*Node, error) { return new(Parser).Parse(string(text), 0) }

// kindOf is the kind of the value that begins with c.
func kindOf(c byte) jsontext.Kind {
	if c == '-' || c-'0' <= 9 {
		return Number
	}
	return jsontext.Kind(c)
}

// fill opens the node; of a list the items too, for who looks at it looks for one of them.
func (n *Node) fill() {
	if n.open || n.kind != Object && n.kind != Array {
		return
	}
	s := Parser{Arena: Arena{least: min(len(n.text)/bytesPerNode, 256)}, lexer: lexer{n.text}, most: maxValues}
	n.kids, _ = s.children(0, 1)
	n.open, n.came = true, uint32(len(n.kids))
}

// openAll opens the whole tree, after which reading it changes nothing.
func (n *Node) openAll() {
	n.fill()
	for i := range n.kids {
		n.kids[i].openAll()
	}
}
