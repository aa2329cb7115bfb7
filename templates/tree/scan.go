// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Parser parses one text after another into the same memory, which is most of
// what a tree costs. Its zero value may be used.
//
// A value's members and items come to lie next to each other in the slab.
type Parser struct {
	text    string
	pending []Node // of the objects and lists that are not at their end yet
	slab    []Node
}

// bytesPerNode is about how many bytes of a pod there are to one node that is opened.
const bytesPerNode = 32

// podLevels is how deep a pod is opened while its text is read anyway: pod,
// metadata and spec, the containers, and a container's fields.
const podLevels = 4

// Parse reads one JSON text (RFC 8259, valid UTF-8), which has a pod that many
// levels deep inside. The tree holds until the next call; texts and names that
// were read from it are copies and stay.
func (s *Parser) Parse(text []byte, levels int) (*Node, error) {
	if allowed := jsontext.AllowDuplicateNames(true); !jsontext.Value(text).IsValid(allowed) {
		return nil, json.Unmarshal(text, new(jsontext.Value), allowed)
	}
	s.text, s.pending, s.slab = string(text), s.pending[:0], s.slab[:0]
	n, _ := s.value(s.blank(0), levels+podLevels)
	return &n, nil
}

// Kept is how many bytes are kept for the next text, beside the last one.
func (s *Parser) Kept() int {
	return (cap(s.pending) + cap(s.slab)) * int(unsafe.Sizeof(Node{}))
}

// levelsOf is how deep a member is opened, where its object may be opened that
// deep: what nobody looks at not at all, what nearly every template adds to whole.
func levelsOf(name string, levels int) int {
	switch name {
	case "env", "extra", "groups", "managedFields", "oldObject", "options", "requestKind", "requestResource", "status":
		return 0
	case "volumeMounts":
		return max(levels, 2)
	}
	return levels
}

// value reads the value at i, opened that many levels deep, and says where it
// ends. That it is JSON was checked before.
func (s *Parser) value(i, levels int) (n Node, end int) {
	switch c := s.text[i]; c {
	case '{', '[':
		n.kind = jsontext.Kind(c)
		if levels > 0 {
			n.kids, end = s.children(i, levels-1)
			n.open = true
		} else {
			end = s.skip(i)
		}
	case '"':
		n.kind, end = String, stringEnd(s.text, i)
	case 't', 'n':
		n.kind, end = jsontext.Kind(c), i+len("true")
	case 'f':
		n.kind, end = False, i+len("false")
	default:
		n.kind = Number
		for end = i; end < len(s.text) && strings.IndexByte("+-.0123456789Ee", s.text[end]) >= 0; {
			end++
		}
	}
	n.text = s.text[i:end]
	return n, end
}

// children reads the members or items of the object or list at i.
func (s *Parser) children(i, levels int) (kids []Node, end int) {
	object, first := s.text[i] == '{', len(s.pending)
	for i = s.blank(i + 1); s.text[i] != '}' && s.text[i] != ']'; {
		name, levels := "", levels
		if object {
			end = stringEnd(s.text, i)
			name = unquote(s.text[i:end])
			i = s.blank(s.blank(end) + len(":"))
			levels = levelsOf(name, levels)
		}
		var n Node
		n, end = s.value(i, levels)
		n.name = name
		if len(s.pending) == cap(s.pending) { // append would grow a long one by and by
			s.pending = slices.Grow(s.pending, max(8, len(s.pending)))
		}
		s.pending = append(s.pending, n)
		if i = s.blank(end); s.text[i] == ',' {
			i = s.blank(i + 1)
		}
	}
	kids = s.keep(s.pending[first:])
	s.pending = s.pending[:first]
	return kids, i + 1
}

// keep copies nodes into the slab; whoever appends to them gets another place.
func (s *Parser) keep(nodes []Node) []Node {
	if len(nodes) > cap(s.slab)-len(s.slab) {
		s.slab = make([]Node, 0, max(len(nodes), 2*cap(s.slab), min(len(s.text)/bytesPerNode, 256)))
	}
	first := len(s.slab)
	s.slab = append(s.slab, nodes...)
	return s.slab[first:len(s.slab):len(s.slab)]
}

// skip gives the end of the object or list at i.
func (s *Parser) skip(i int) int {
	for depth := 0; ; {
		switch s.text[i] {
		case '"':
			i = stringEnd(s.text, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}

func (s *Parser) blank(i int) int {
	for i < len(s.text) && (s.text[i] == ' ' || s.text[i] == '\n' || s.text[i] == '\t' || s.text[i] == '\r') {
		i++
	}
	return i
}

// stringEnd gives the end of the string at i.
func stringEnd(text string, i int) int {
	for i++; ; {
		i += strings.IndexByte(text[i:], '"') + 1
		escapes := 0
		for text[i-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
}

// unquote gives the text between the quotes, and copies only where there are escapes.
func unquote(quoted string) string {
	inner := quoted[1 : len(quoted)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		panic("tree: a checked string does not unquote: " + err.Error())
	}
	return string(text)
}
