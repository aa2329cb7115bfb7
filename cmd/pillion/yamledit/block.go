// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// changeBlock writes the changes of an object or list in block style.
func (e *editor) changeBlock(n *yaml.Node, entries []entry, boundary int) {
	if len(n.Content) == 0 {
		brackets := "{}"
		if n.Kind == yaml.SequenceNode {
			brackets = "[]"
		}
		e.addCut(e.offsetOf(n), e.endOf(entries[len(entries)-1].last), brackets)
		return
	}
	column := e.blockColumn(n)
	e.cutEntries(entries, column)
	size := entrySize(n)
	at := -1 // index of the last entry that is in the source
	for i := 0; i < len(n.Content); i += size {
		if k := slices.IndexFunc(entries[at+1:], func(x entry) bool { return x.head == n.Content[i] }); k >= 0 {
			at += 1 + k
			if value := n.Content[i+size-1]; value != entries[at].value {
				e.replaceEmpty(n, entries[at], value, column)
			}
			continue
		}
		node := &yaml.Node{Kind: n.Kind, Content: n.Content[i : i+size]}
		lines := indentLines(e.style.renderBlock(node), column-1)
		if begin := e.starts[entries[0].first-1] + column - 1; at < 0 && !e.isFirst(begin) { // after a dash
			e.addCut(begin, begin, strings.TrimLeft(lines, " ")+strings.Repeat(" ", column-1))
			continue
		}
		e.insertLines(e.lineFor(n, entries, at, column, boundary), lines)
	}
}

// cutEntries removes the deleted entries.
func (e *editor) cutEntries(entries []entry, column int) {
	for i := 0; i < len(entries); i++ {
		x := &entries[i]
		begin := e.starts[x.first-1] + column - 1
		switch {
		case !x.gone:
		case e.isFirst(begin):
			e.cutLines(x.first, x.last)
		default: // after a dash: the next entry moves there
			for i++; i < len(entries) && entries[i].gone; i++ {
			}
			if i < len(entries) {
				e.addCut(begin, e.starts[entries[i].first-1]+column-1, "")
			}
		}
	}
}

// lineFor returns the line before which to insert an entry that comes after the entry with
// this index, or before all entries if the index is -1.
func (e *editor) lineFor(n *yaml.Node, entries []entry, at, column, boundary int) int {
	if at < 0 {
		line := entries[0].first
		if n.Kind == yaml.SequenceNode {
			for line > 1 && e.isComment(line-1) && e.indentOf(line-1) == column-1 {
				line--
			}
		}
		return line
	}
	if at == len(entries)-1 {
		return e.afterComments(entries[at].last+1, column, boundary)
	}
	if n.Kind == yaml.SequenceNode {
		column++
	}
	return e.afterComments(entries[at].last+1, column, entries[at+1].first)
}

// replaceEmpty replaces an empty value, or restores one.
func (e *editor) replaceEmpty(n *yaml.Node, x entry, value *yaml.Node, column int) {
	if n.Kind == yaml.SequenceNode {
		from := e.offsetOf(x.value)
		by := from - e.starts[e.lineOf(from)-1]
		e.addCut(from, e.flowEnd(x.value), strings.TrimLeft(strings.TrimSuffix(indentLines(e.style.renderBlock(value), by), "\n"), " "))
		return
	}
	start := e.keyEnd(x.head)
	if text, ok := e.texts[value]; ok {
		e.restoreEmpty(x, start, text)
		return
	}
	text := e.emptyText(x.head, x.value)
	end := start + len(text)
	before, inside := splitEmpty(text)
	if value.Kind == yaml.ScalarNode || len(value.Content) == 0 || value.Style&yaml.FlowStyle != 0 {
		if strings.HasSuffix(before, ":") {
			before += " "
		}
		e.cutExact(start, end, before+renderFlow(value))
		return
	}
	indent := column - 1
	if value.Kind == yaml.MappingNode || !e.style.compact {
		indent += e.style.indent
	}
	e.cutExact(start, end, e.trimEmpty(before+inside, end))
	e.insertLines(e.lineOf(end)+1, indentLines(e.style.renderBlock(value), indent))
}

// restoreEmpty writes an empty value back in its original form, in place of what it was filled
// with.
func (e *editor) restoreEmpty(x entry, start int, text string) {
	if x.value.Kind == yaml.ScalarNode || x.value.Style&yaml.FlowStyle != 0 {
		e.cutExact(start, e.scalarEnd(x.value), text)
		return
	}
	before, inside := splitEmpty(text)
	left := before + inside
	if end := start + len(left); end > len(e.data) || !bytes.HasPrefix(e.data[start:], []byte(left)) || e.trimEmpty(left, end) != left {
		left = strings.TrimRight(left, " \t\r\n")
	}
	if !bytes.HasPrefix(e.data[start:], []byte(left)) { // the user changed the line
		left, text = ":", ": "+tokenOf(text)
	}
	e.cutExact(start, start+len(left), text)
	if first := e.lineOf(start+len(left)) + 1; first <= x.last {
		e.cutLines(first, x.last)
	}
}

// trimEmpty returns what remains of the source of an empty value that ends at an offset. It drops
// the blanks at the end, unless a comment follows in the line.
func (e *editor) trimEmpty(left string, end int) string {
	if bytes.HasPrefix(bytes.TrimSpace(e.data[end:e.starts[e.lineOf(end)]]), []byte("#")) {
		return left
	}
	return strings.TrimRight(left, " \t\r\n")
}

// scalarEnd returns the offset after a scalar or a flow collection in a block.
func (e *editor) scalarEnd(n *yaml.Node) int {
	if n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0 {
		return min(e.contentOffset(n)+len(n.Value), len(e.data))
	}
	return e.flowEnd(n)
}

// endOf returns the offset of the end of a line, before its line break.
func (e *editor) endOf(line int) int {
	end := e.starts[line]
	return end - breakLength(e.data[:end])
}

// indentLines returns the lines with more indentation.
func indentLines(lines string, by int) string {
	var out strings.Builder
	for line := range strings.Lines(lines) {
		if line != "\n" {
			out.WriteString(strings.Repeat(" ", by))
		}
		out.WriteString(line)
	}
	return out.String()
}
