// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// cut is a replacement of the bytes between two offsets.
type cut struct {
	from, to int
	text     string
	lines    bool // inserts or removes whole lines; the last line of the source may have no line break
	exact    bool // the replacement keeps its own line breaks
}

// applyCuts returns the source with all cuts applied, and what they inserted.
func (e *editor) applyCuts() ([]byte, []Span) {
	var marks []Span
	slices.SortStableFunc(e.cuts, func(a, b cut) int { return cmp.Compare(a.from, b.from) })
	lineBreak := e.lineBreak()
	var out bytes.Buffer
	at := 0
	for _, c := range e.cuts {
		if c.from > at {
			out.Write(e.data[at:c.from])
		}
		at = max(at, c.to)
		text := c.text
		if lineBreak != "\n" && !c.exact {
			text = strings.ReplaceAll(text, "\n", lineBreak)
		}
		if c.lines && text != "" && e.style.open && c.from == len(e.data) {
			text = lineBreak + strings.TrimSuffix(text, lineBreak)
		}
		if text != "" {
			marks = append(marks, Span{out.Len(), out.Len() + len(text)})
		}
		out.WriteString(text)
		if c.lines && c.text == "" && e.style.open && at == len(e.data) { // the new last line has no line break either
			out.Truncate(out.Len() - breakLength(out.Bytes()))
		}
	}
	out.Write(e.data[at:])
	return out.Bytes(), marks
}

// breakLength returns the length of the line break at the end.
func breakLength(data []byte) int {
	switch {
	case bytes.HasSuffix(data, []byte("\r\n")):
		return 2
	case bytes.HasSuffix(data, []byte("\n")), bytes.HasSuffix(data, []byte("\r")):
		return 1
	}
	return 0
}

func (e *editor) addCut(from, to int, text string) {
	e.cuts = append(e.cuts, cut{from: from, to: to, text: text})
}

func (e *editor) cutExact(from, to int, text string) {
	e.cuts = append(e.cuts, cut{from: from, to: to, text: text, exact: true})
}

func (e *editor) cutLines(first, last int) {
	e.cuts = append(e.cuts, cut{from: e.starts[first-1], to: e.starts[last], lines: true})
}

func (e *editor) insertLines(before int, text string) {
	e.cuts = append(e.cuts, cut{from: e.starts[before-1], to: e.starts[before-1], text: text, lines: true})
}

// cutDifferences adds cuts for the differences between a node and its original, and between their
// children. The lines of the node end before the line boundary.
func (e *editor) cutDifferences(n *yaml.Node, boundary int) {
	size := entrySize(n)
	was := e.originalContent(n)
	isFlow := n.Style&yaml.FlowStyle != 0
	live := map[*yaml.Node]bool{}
	if _, changed := e.was[n]; changed {
		for _, child := range n.Content {
			live[child] = true
		}
	}
	entries := make([]entry, 0, len(was)/size)
	for i := 0; i+size <= len(was); i += size {
		x := entry{head: was[i], value: was[i+size-1]}
		x.gone = len(live) > 0 && !live[x.head] || len(live) == 0 && e.isTouched(n)
		entries = append(entries, x)
	}
	if !isFlow {
		e.locateEntries(n, entries, boundary)
	}
	for i := range entries {
		x := &entries[i]
		if x.gone || e.isTouched(n) && !live[x.value] {
			continue
		}
		next := boundary
		if !isFlow && i+1 < len(entries) {
			next = entries[i+1].first
		}
		if !isFlow && size == 2 && e.isTouched(x.value) && len(e.originalContent(x.value)) == 0 {
			e.replaceEmpty(n, *x, &yaml.Node{Kind: x.value.Kind, Content: x.value.Content}, e.blockColumn(n))
			continue
		}
		e.cutDifferences(x.value, next)
	}
	switch {
	case !e.isTouched(n):
	case isFlow:
		e.changeFlow(n, entries)
	default:
		e.changeBlock(n, entries, boundary)
	}
}

func (e *editor) isTouched(n *yaml.Node) bool { _, touched := e.was[n]; return touched }

// entry is a member of an object or an item of a list in the source.
type entry struct {
	head, value *yaml.Node // key and value, or the item twice
	first, last int        // lines, in block style
	gone        bool
}

// locateEntries finds the first lines of a block's entries. If the block is touched, it finds their last
// lines too.
func (e *editor) locateEntries(n *yaml.Node, entries []entry, boundary int) {
	column := e.blockColumn(n)
	for i := range entries {
		entries[i].first = entries[i].head.Line
		if n.Kind == yaml.SequenceNode {
			entries[i].first = e.dashLine(n, entries[i].head, column)
		}
	}
	for i := range entries {
		next := boundary
		if i+1 < len(entries) {
			next = entries[i+1].first
		}
		if e.isTouched(n) { // unused otherwise
			entries[i].last = e.lastLine(entries[i].value, entries[i].head, column, next)
		}
	}
}

// blockColumn returns the column of a block's keys or dashes. A node with an anchor or a tag begins
// at that, so column looks for its first key or dash instead.
func (e *editor) blockColumn(n *yaml.Node) int {
	at := e.offsetOf(n)
	if first := e.originalContent(n); n.Kind == yaml.MappingNode && len(first) > 0 && at < len(e.data) && e.data[at] != '?' {
		at = e.offsetOf(first[0])
	} else if n.Kind == yaml.SequenceNode && at < len(e.data) && e.data[at] != '-' && len(first) > 0 {
		if dash := bytes.LastIndexByte(e.data[at:e.offsetOf(first[0])], '-'); dash >= 0 {
			at += dash
		}
	}
	return at - e.starts[e.lineOf(at)-1] + 1
}

// dashLine returns the line of a list item's dash, which may be above the item.
func (e *editor) dashLine(list, item *yaml.Node, column int) int {
	for line := min(item.Line, e.lineCount()); line >= list.Line; line-- {
		at := e.starts[line-1] + column - 1
		if at < e.starts[line] && e.data[at] == '-' && (at+1 == len(e.data) || isSpace(e.data[at+1])) && (line == list.Line || e.indentOf(line) == column-1) {
			return line
		}
	}
	return item.Line
}

// lastLine returns the last line of the value of a block's entry. The head is its key, or the
// value itself in a list, and the column is that of the key or dash.
func (e *editor) lastLine(n, head *yaml.Node, column, boundary int) int {
	for was := e.originalContent(n); n.Style&yaml.FlowStyle == 0 && len(was) > 0; was = e.originalContent(n) {
		column = e.blockColumn(n)
		if head = was[len(was)-1]; n.Kind == yaml.MappingNode {
			head = was[len(was)-2]
		}
		n = was[len(was)-1]
	}
	switch {
	case n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode:
		return e.lineOf(max(e.skipFlow(e.contentOffset(n))-1, 0))
	case n.Kind == yaml.AliasNode:
		return n.Line
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return e.lineOf(max(e.skipQuoted(e.contentOffset(n))-1, 0))
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return e.lastOfBlock(n, column, boundary)
	}
	first := max(n.Line, head.Line)
	if n.Value == "" {
		return min(first, boundary-1)
	}
	last := boundary - 1
	for last > first && (e.isBlank(last) || e.isComment(last)) {
		last--
	}
	return last
}

// lastOfBlock returns the last line of a block scalar.
func (e *editor) lastOfBlock(n *yaml.Node, column, boundary int) int {
	header := e.data[e.contentOffset(n):e.starts[e.lineOf(e.contentOffset(n))]]
	first := e.lineOf(e.contentOffset(n))
	last, indent := first, -1
	if i := bytes.IndexAny(header, "123456789"); i > 0 && i < 3 {
		indent = column - 1 + int(header[i]-'0')
	}
	for line := first + 1; line < boundary; line++ {
		if e.isBlank(line) && (indent < 0 || e.indentOf(line) <= indent) {
			continue
		}
		if indent < 0 {
			if indent = e.indentOf(line); indent < column {
				break
			}
		}
		if e.indentOf(line) < indent {
			break
		}
		last = line
	}
	if bytes.HasPrefix(header[1:], []byte("+")) || len(header) > 2 && header[2] == '+' { // it keeps empty lines
		for last+1 < boundary && e.isBlank(last+1) {
			last++
		}
	}
	return last
}

// afterComments returns the line after the comments that belong to a block. These are the
// comments directly after the block, up to one that is left of its column or in the column of the
// next block.
func (e *editor) afterComments(line, column, boundary int) int {
	next := 0
	if boundary <= e.lineCount() {
		next = e.indentOf(boundary) + 1
	}
	after := line
	for ; line < boundary && line <= e.lineCount() && (e.isBlank(line) || e.isComment(line)); line++ {
		if e.isBlank(line) {
			continue
		}
		if at := e.indentOf(line) + 1; at < column || at == next {
			break
		}
		after = line + 1
	}
	return after
}

// keepLastScalar sets the chomping indicator of a block scalar at the end of a source without
// a final line break, because a line will follow it.
func (e *editor) keepLastScalar(n *yaml.Node) {
	if !e.style.open || !slices.ContainsFunc(e.cuts, func(c cut) bool { return c.lines && c.text != "" && c.from == len(e.data) }) {
		return
	}
	for was := e.originalContent(n); n.Style&yaml.FlowStyle == 0 && len(was) > 0; was = e.originalContent(n) {
		n = was[len(was)-1]
	}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 || n.Value == "" || strings.HasSuffix(n.Value, "\n") {
		return
	}
	if at := e.contentOffset(n) + 1; bytes.IndexByte([]byte("+-"), e.data[at]) < 0 && bytes.IndexByte([]byte("+-"), e.data[min(at+1, len(e.data)-1)]) < 0 {
		e.cuts = append(e.cuts, cut{from: at, to: at, text: "-"})
	}
}
