// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// source is the source of a document with an index of its lines.
type source struct {
	data   []byte
	starts []int              // byte offset of each line; the last one is the length
	json   map[*yaml.Node]int // the offsets of nodes without line and column
	runes  map[int][]int      // for lines that are not ASCII, the offsets of their characters
}

func newSource(data []byte) *source {
	s := &source{data: data, starts: []int{0}, runes: map[int][]int{}}
	if bytes.HasPrefix(data, []byte(byteOrderMark)) {
		s.starts[0] = len(byteOrderMark)
	}
	for i := s.starts[0]; i < len(data); {
		n := breakAt(data, i)
		if i += max(n, 1); n > 0 {
			s.starts = append(s.starts, i)
		}
	}
	if s.starts[len(s.starts)-1] < len(data) || len(s.starts) == 1 {
		s.starts = append(s.starts, len(data))
	}
	return s
}

const byteOrderMark = "\uFEFF"

// breakAt returns the length of the line break at an offset, or 0. It recognizes the line
// breaks of YAML 1.1, as the library does.
func breakAt(data []byte, i int) int {
	switch rest := data[i:]; {
	case bytes.HasPrefix(rest, []byte("\r\n")), bytes.HasPrefix(rest, []byte("\u0085")):
		return 2
	case rest[0] == '\n', rest[0] == '\r':
		return 1
	case bytes.HasPrefix(rest, []byte("\u2028")), bytes.HasPrefix(rest, []byte("\u2029")):
		return 3
	}
	return 0
}

// lineCount returns the number of lines.
func (s *source) lineCount() int { return len(s.starts) - 1 }

// lineBytes returns a line with its line break, counted from 1.
func (s *source) lineBytes(n int) []byte { return s.data[s.starts[n-1]:s.starts[n]] }

// lineOf returns the line of an offset.
func (s *source) lineOf(offset int) int {
	n, found := slices.BinarySearch(s.starts, offset)
	if found {
		n++
	}
	return min(max(n, 1), s.lineCount())
}

// offsetOf returns the offset of a node, including its anchor and tag.
func (s *source) offsetOf(n *yaml.Node) int {
	if at, ok := s.json[n]; ok {
		return at
	}
	if n.Line < 1 || n.Line > s.lineCount() {
		return len(s.data)
	}
	columns, known := s.runes[n.Line]
	if !known {
		columns = characterOffsets(s.lineBytes(n.Line))
		s.runes[n.Line] = columns
	}
	begin, column := s.starts[n.Line-1], max(n.Column-1, 0)
	switch {
	case columns == nil:
		return min(begin+column, len(s.data))
	case column < len(columns):
		return begin + columns[column]
	}
	return s.starts[n.Line]
}

// characterOffsets returns the offsets of the characters of a line, or nil if all are single bytes.
func characterOffsets(line []byte) []int {
	if !slices.ContainsFunc(line, func(c byte) bool { return c >= utf8.RuneSelf }) {
		return nil
	}
	var all []int
	for at := 0; at < len(line); {
		all = append(all, at)
		_, size := utf8.DecodeRune(line[at:])
		at += size
	}
	return all
}

// isFirst reports whether only spaces precede an offset in its line.
func (s *source) isFirst(offset int) bool {
	before := s.data[s.starts[s.lineOf(offset)-1]:offset]
	return len(bytes.TrimLeft(before, " ")) == 0
}

// indentOf returns the number of spaces at the beginning of a line.
func (s *source) indentOf(n int) int {
	line := s.lineBytes(n)
	return len(line) - len(bytes.TrimLeft(line, " "))
}

func (s *source) isBlank(n int) bool { return len(bytes.TrimSpace(s.lineBytes(n))) == 0 }

func (s *source) isComment(n int) bool {
	return bytes.HasPrefix(bytes.TrimLeft(s.lineBytes(n), " \t"), []byte("#"))
}

// lineBreak returns the most common line break.
func (s *source) lineBreak() string {
	if 2*bytes.Count(s.data, []byte("\r\n")) > bytes.Count(s.data, []byte("\n")) {
		return "\r\n"
	}
	return "\n"
}

// contentOffset returns the offset of a node after its anchor and tag.
func (s *source) contentOffset(n *yaml.Node) int {
	return s.skipProperties(s.offsetOf(n))
}

// skipProperties skips anchors and tags.
func (s *source) skipProperties(at int) int {
	for at < len(s.data) && (s.data[at] == '&' || s.data[at] == '!') {
		for at < len(s.data) && !isSpace(s.data[at]) {
			at++
		}
		at = s.skipSpace(at)
	}
	return at
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skipSpace skips white space and comments.
func (s *source) skipSpace(at int) int {
	for at < len(s.data) {
		switch {
		case isSpace(s.data[at]):
			at++
		case s.data[at] == '#' && (at == 0 || isSpace(s.data[at-1]) || bytes.IndexByte([]byte(",[]{}\"'"), s.data[at-1]) >= 0):
			at = s.starts[s.lineOf(at)]
		default:
			return at
		}
	}
	return at
}

// skipQuoted returns the offset after a quoted string that begins at an offset.
func (s *source) skipQuoted(at int) int {
	quote := s.data[at]
	for at++; at < len(s.data); at++ {
		switch c := s.data[at]; {
		case c == '\\' && quote == '"':
			at++
		case c == quote && quote == '\'' && at+1 < len(s.data) && s.data[at+1] == quote:
			at++
		case c == quote:
			return at + 1
		}
	}
	return len(s.data)
}

// skipFlow returns the offset after a flow collection that begins at an offset.
func (s *source) skipFlow(at int) int {
	for depth := 0; at < len(s.data); {
		switch c := s.data[at]; c {
		case '[', '{':
			depth++
			at++
		case ']', '}':
			depth--
			if at++; depth == 0 {
				return at
			}
			at = s.skipColon(at)
		case '"', '\'':
			at = s.skipColon(s.skipQuoted(at))
		case '#':
			at = max(s.skipSpace(at), at+1)
		case '&', '*', '!':
			at = s.skipProperty(at)
		case ' ', '\t', '\r', '\n', ',', '?':
			at++
		default:
			at = max(s.skipPlain(at), at+1)
		}
	}
	return len(s.data)
}

// skipColon returns the offset after a colon directly behind a key that is like one of JSON: "a":b.
func (s *source) skipColon(at int) int {
	if at < len(s.data) && s.data[at] == ':' {
		return at + 1
	}
	return at
}

// skipPlain returns the offset after a plain string in a flow collection, and after the spaces behind it.
func (s *source) skipPlain(at int) int {
	for ; at < len(s.data); at++ {
		c := s.data[at]
		if bytes.IndexByte([]byte(",[]{}"), c) >= 0 || c == ':' && (at+1 == len(s.data) || isSpace(s.data[at+1])) || c == '#' && at > 0 && isSpace(s.data[at-1]) {
			break
		}
	}
	return at
}

// skipProperty returns the offset after an anchor, an alias or a tag. A tag in angle brackets may contain commas.
func (s *source) skipProperty(at int) int {
	if bytes.HasPrefix(s.data[at:], []byte("!<")) {
		if end := bytes.IndexByte(s.data[at:], '>'); end > 0 {
			return at + end + 1
		}
	}
	for at < len(s.data) && !isSpace(s.data[at]) && bytes.IndexByte([]byte(",[]{}"), s.data[at]) < 0 {
		at++
	}
	return at
}

// flowEnd returns the offset after a node in a flow collection.
func (s *source) flowEnd(n *yaml.Node) int {
	at := s.contentOffset(n)
	if at >= len(s.data) {
		return at
	}
	switch c := s.data[at]; {
	case n.Kind == yaml.MappingNode && c != '{': // [a: b]
		return s.flowEnd(n.Content[len(n.Content)-1])
	case n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode:
		return s.skipFlow(at)
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return s.skipQuoted(at)
	case n.Value != "" && bytes.HasPrefix(s.data[at:], []byte(n.Value)): // one line, even if it ends with a colon
		return at + len(n.Value)
	}
	end := s.skipPlain(at)
	for end > at && isSpace(s.data[end-1]) {
		end--
	}
	return end
}
