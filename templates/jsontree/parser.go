// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Parser parses one document after another into the same memory, because allocating it is most
// of a tree's cost. Its zero value is ready to use.
//
// It checks the JSON and creates the nodes in one pass; a library would need two. It accepts
// the same JSON as that library, see FuzzParse.
//
// The members and items of a value are adjacent in the arena.
type Parser struct {
	Arena
	lexer

	// Env also opens the environment variables of containers, for callers that add to them.
	Env bool

	depth   int
	values  int
	allowed int // values that are allowed now
	most    int // values that are allowed in total
	room    Room
	denied  error
	pending []Node // children of the unfinished objects and lists
}

// bytesPerNode is the approximate number of bytes of a pod for each opened node.
const bytesPerNode = 32

// spare is the number of nodes that can be added to an opened object or list before all its
// nodes move. Empty ones have none to move.
const spare = 2

// podLevels is the depth to which the parser opens a pod: pod, metadata and spec, the
// containers, and a container's fields.
const podLevels = 4

// maxDepth limits the depth of values, as in encoding/json.
const maxDepth = 10_000

// maxValues limits the number of values in a document. A node takes 64 bytes, so tiny values
// take many times their JSON. The API server accepts pods of up to 3 MiB, which have fewer
// values, unless they consist only of {}.
const maxValues = 1 << 20

// FewValues is the number of values before the parser calls a [Room], and the number of values
// in each call.
const FewValues = 4096

// Room reports whether there is room for n more values.
type Room interface{ Values(n int) bool }

// ErrNoRoom means that the document has more values than a [Room] had room for.
var ErrNoRoom = errors.New("it has more values than there is room for")

// ErrTooManyValues means that a document has too many values. The rest of it may be invalid.
var ErrTooManyValues = errors.New("too many values")

// Parse parses one JSON document (RFC 8259, valid UTF-8) that contains a pod at this depth.
// The tree's strings and names are parts of the document. The tree is valid until the next
// call.
func (s *Parser) Parse(text string, levels int) (*Node, error) {
	return s.ParseIn(nil, maxValues, text, levels)
}

// ParseIn is Parse with a limit on the number of values, and with room for them, unless room
// is nil.
func (s *Parser) ParseIn(room Room, most int, text string, levels int) (*Node, error) {
	s.room, s.most, s.allowed, s.denied = room, most, min(FewValues, most), nil
	s.text, s.depth, s.values, s.pending, s.slab, s.elsewhere = text, 0, 0, s.pending[:0], s.slab[:0], 0
	s.texts = s.texts[:0]
	s.least = min(len(text)/bytesPerNode, 256)
	end := s.parseValue("", s.blankEnd(0), levels+podLevels)
	s.room = nil
	switch {
	case s.denied != nil:
		return nil, s.denied
	case end < 0 || s.blankEnd(end) < len(text):
		return nil, whyNotJSON(text)
	}
	return &s.pending[0], nil
}

// whyNotJSON returns the error that a library reports for the invalid JSON.
func whyNotJSON(text string) error {
	if err := json.Unmarshal([]byte(text), new(jsontext.Value), jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	return errors.New("it is not JSON")
}

// Kept returns the number of bytes that are kept for the next document, besides the last one.
func (s *Parser) Kept() int {
	return (cap(s.pending)+cap(s.slab)+s.elsewhere)*int(unsafe.Sizeof(Node{})) + cap(s.texts)
}

// levelsOf returns how deep to open a member of an opened object. Members that no caller reads
// are not opened. Members that nearly every template adds to are opened completely.
func (s *Parser) levelsOf(name string, levels int) int {
	switch name {
	case "env":
		switch {
		case levels > 0: // a pod that is compared with templates
			return levels + 1
		case s.Env:
			return 2
		}
	case "extra", "groups", "managedFields", "oldObject", "options", "requestKind", "requestResource", "status":
		return 0
	case "projected": // the sources of a volume, one of which may be the API token
		return max(levels, 3)
	case "volumeMounts":
		return max(levels, 2)
	}
	return levels
}

// parseValue parses the value at i, which belongs to a member with this name, into a pending node.
// It opens the value to this depth, and returns its end, or -1 if it is invalid.
func (s *Parser) parseValue(name string, i, levels int) (end int) {
	var kids []Node
	c, open, escaped := s.byteAt(i), false, false
	switch c {
	case '"':
		end, escaped = s.quotedEnd(i)
	case '{', '[':
		if levels = s.levelsOf(name, levels); levels > 0 {
			open = true
			kids, end = s.parseChildren(i, levels-1)
		} else {
			end = s.skipValue(i)
		}
	default:
		end = s.scalarEnd(i)
	}
	if end >= 0 {
		n := s.pushPending(i)
		n.name, n.text, n.kids = name, s.text[i:end], kids
		n.kind, n.open, n.added, n.escaped, n.came = kindOf(c), open, original, escaped, uint32(len(kids))
	}
	return end
}

// scalarEnd checks the value at i, which is not a string. It returns its end, or -1 if it is
// invalid.
func (s *Parser) scalarEnd(i int) (end int) {
	switch s.byteAt(i) {
	case 't':
		return s.wordEnd(i, "true")
	case 'f':
		return s.wordEnd(i, "false")
	case 'n':
		return s.wordEnd(i, "null")
	}
	return s.numberEnd(i)
}

// parseChildren parses the members or items of the object or list at i, opened to this depth.
func (s *Parser) parseChildren(i, levels int) (kids []Node, end int) {
	if s.depth++; s.depth > maxDepth {
		return nil, -1
	}
	object, closing, first := s.text[i] == '{', s.text[i]+2, len(s.pending)
	i = s.blankEnd(i + 1)
	for more := s.byteAt(i) != closing; more; {
		if s.values++; s.values > s.allowed && !s.requestRoom() {
			return nil, -1
		}
		name := ""
		if object {
			end, escaped := s.quotedEnd(i)
			if end < 0 {
				return nil, -1
			}
			if name = s.text[i+1 : end-1]; escaped {
				name = unquoteString(s.text[i:end])
			}
			if i = s.valueStart(end); i < 0 {
				return nil, -1
			}
		}
		if i = s.parseValue(name, i, levels); i < 0 {
			return nil, -1
		}
		i = s.blankEnd(i)
		switch more = s.byteAt(i) == ','; {
		case more:
			i = s.blankEnd(i + 1)
		case s.byteAt(i) != closing:
			return nil, -1
		}
	}
	s.depth--
	return s.movePending(first), i + 1
}

// skipValue checks the object or list at i. It returns its end, or -1 if it is invalid. It creates
// no nodes and does not recurse, because a third of a review is skipped.
func (s *Parser) skipValue(i int) (end int) {
	var few [32]byte
	within := few[:0] // the closing bytes of the objects and lists around i
	for {
		switch c := s.byteAt(i); c {
		case '"':
			i, _ = s.quotedEnd(i)
		case '{', '[':
			if i = s.blankEnd(i + 1); s.byteAt(i) == c+2 && s.depth+len(within) < maxDepth {
				i++
				break
			}
			if within = append(within, c+2); s.depth+len(within) > maxDepth {
				return -1
			}
			if i = s.countEntry(i, c+2); i < 0 {
				return -1
			}
			continue
		default:
			i = s.scalarEnd(i)
		}
		for { // a value ends at i
			if i < 0 || len(within) == 0 {
				return i
			}
			closing := within[len(within)-1]
			i = s.blankEnd(i)
			if c := s.byteAt(i); c == ',' {
				if i = s.countEntry(s.blankEnd(i+1), closing); i < 0 {
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

// countEntry counts the member or item at i. It returns the start of its value, or -1 if it has no
// name.
func (s *Parser) countEntry(i int, closing byte) (value int) {
	if s.values++; s.values > s.allowed && !s.requestRoom() {
		return -1
	}
	if closing != '}' {
		return i
	}
	if i, _ = s.quotedEnd(i); i < 0 {
		return -1
	}
	return s.valueStart(i)
}

// valueStart returns the start of the value whose name ends at i, or -1 if there is none.
func (s *Parser) valueStart(i int) int {
	if s.byteAt(i) != ':' {
		if i = s.skipBlank(i); s.byteAt(i) != ':' {
			return -1
		}
	}
	return s.blankEnd(i + 1)
}

// requestRoom requests room for more values.
func (s *Parser) requestRoom() bool {
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

// movePending moves the pending nodes from the first one to the arena, as the children of a value.
func (s *Parser) movePending(first int) (kids []Node) {
	switch n := len(s.pending) - first; {
	case n == 0:
	case n > maxSlab && 2*n > cap(s.pending): // a copy of them would take too much memory
		s.elsewhere += cap(s.pending)
		kids, s.pending = s.pending[first:], slices.Clone(s.pending[:first])
	case n > maxSlab: // keeping the whole slice for them would take more
		s.elsewhere += n
		kids, s.pending = slices.Clone(s.pending[first:]), s.pending[:first]
	default:
		kids, s.pending = append(s.Nodes(n+spare), s.pending[first:]...), s.pending[:first]
	}
	return kids
}

// pushPending adds a pending node with the value at i.
func (s *Parser) pushPending(i int) *Node {
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

// Parse parses one JSON document (RFC 8259, valid UTF-8). The tree has a copy of it, so the
// caller may change it. If an object has two members with one name, the last one counts, as in
// the API server and in its JSON Patch library.
func Parse(text []byte) (*Node, error) { return new(Parser).Parse(string(text), 0) }

// kindOf returns the kind of the value that begins with c.
func kindOf(c byte) jsontext.Kind {
	if c == '-' || c-'0' <= 9 {
		return Number
	}
	return jsontext.Kind(c)
}

// openKids opens the node. It also opens the items of a list, because callers that read a list
// search its items.
func (n *Node) openKids() {
	if n.open || n.kind != Object && n.kind != Array {
		return
	}
	s := Parser{Arena: Arena{least: min(len(n.text)/bytesPerNode, 256)}, lexer: lexer{n.text}, most: maxValues}
	n.kids, _ = s.parseChildren(0, 1)
	n.open, n.came = true, uint32(len(n.kids))
}

// openAll opens the whole tree. After that, reading it changes nothing.
func (n *Node) openAll() {
	n.openKids()
	for i := range n.kids {
		n.kids[i].openAll()
	}
}
