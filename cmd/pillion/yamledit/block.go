// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// changeBlock writes what has become of an object or list in block style.
func (e *editor) changeBlock(n *yaml.Node, entries []entry, boundary int) {
	if len(n.Content) == 0 {
		brackets := "{}"
		if n.Kind == yaml.SequenceNode {
			brackets = "[]"
		}
		e.cut(e.offset(n), e.endOf(entries[len(entries)-1].last), brackets)
		return
	}
	column := e.column(n)
	e.cutEntries(entries, column)
	size := len(n.Content) / max(countEntries(n), 1)
	at := -1 // of the entry in the text that was last
	for i := 0; i < len(n.Content); i += size {
		if k := slices.IndexFunc(entries[at+1:], func(x entry) bool { return x.head == n.Content[i] }); k >= 0 {
			at += 1 + k
			if value := n.Content[i+size-1]; value != entries[at].value {
				e.replace(n, entries[at], value, column)
			}
			continue
		}
		node := &yaml.Node{Kind: n.Kind, Content: n.Content[i : i+size]}
		lines := indented(e.style.block(node), column-1)
		if begin := e.starts[entries[0].first-1] + column - 1; at < 0 && !e.isFirst(begin) { // behind a dash
			e.cut(begin, begin, strings.TrimLeft(lines, " ")+strings.Repeat(" ", column-1))
			continue
		}
		e.insertLines(e.placeFor(n, entries, at, column, boundary), lines)
	}
}

func countEntries(n *yaml.Node) int {
	if n.Kind == yaml.MappingNode {
		return len(n.Content) / 2
	}
	return len(n.Content)
}

// cutEntries takes out what is gone.
func (e *editor) cutEntries(entries []entry, column int) {
	for i := 0; i < len(entries); i++ {
		x := &entries[i]
		begin := e.starts[x.first-1] + column - 1
		switch {
		case !x.gone:
		case e.isFirst(begin):
			e.cutLines(x.first, x.last)
		default: // behind a dash: what comes next moves there
			for i++; i < len(entries) && entries[i].gone; i++ {
			}
			if i < len(entries) {
				e.cut(begin, e.starts[entries[i].first-1]+column-1, "")
			}
		}
	}
}

// placeFor returns the line before which something goes that is behind the entry
// at an index of the text, or before all if that is -1.
func (e *editor) placeFor(n *yaml.Node, entries []entry, at, column, boundary int) int {
	if at < 0 {
		line := entries[0].first
		if n.Kind == yaml.SequenceNode {
			for line > 1 && e.isComment(line-1) && e.indent(line-1) == column-1 {
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

// replace puts a value in the place of one that means nothing, of which a comment
// is left, or of an alias, or such a value back.
func (e *editor) replace(n *yaml.Node, x entry, value *yaml.Node, column int) {
	from := e.offset(x.value)
	to := from + len(x.value.Value)
	comment := " # was " + x.value.Value
	switch {
	case n.Kind == yaml.MappingNode && e.isFilled(x):
		e.putBack(x)
		return
	case x.value.Kind == yaml.AliasNode:
		to += len("*")
		comment = ""
	case x.value.Kind != yaml.ScalarNode:
		to = e.skipFlow(e.content(x.value))
		comment = " # was " + string(e.data[from:to])
	case x.value.Value == "":
		from = e.afterColon(x.head)
		to = from
		comment = " # was empty"
	}
	if n.Kind == yaml.SequenceNode {
		by := from - e.starts[e.lineOf(from)-1]
		e.cut(from, to, strings.TrimLeft(strings.TrimSuffix(indented(e.style.block(value), by), "\n"), " "))
		return
	}
	if value.Kind == yaml.ScalarNode || len(value.Content) == 0 || value.Style&yaml.FlowStyle != 0 {
		e.cut(from, to, strings.Repeat(" ", 1-min(to-from, 1))+strings.TrimSuffix(e.style.block(value), "\n")+comment)
		return
	}
	if from < to {
		comment = strings.TrimPrefix(comment, " ")
	}
	if comment == "" {
		from = len(bytes.TrimRight(e.data[:from], " "))
	}
	e.cut(from, to, comment)
	indent := column - 1
	if value.Kind == yaml.MappingNode || !e.style.compact {
		indent += e.style.indent
	}
	e.insertLines(e.lineOf(to)+1, indented(e.style.block(value), indent))
}

// isFilled reports whether an entry has the comment of a filled one.
func (e *editor) isFilled(x entry) bool { return filledComment.Match(e.line(x.head.Line)) }

// putBack puts back what was there before an entry was filled.
func (e *editor) putBack(x entry) {
	begin := e.starts[x.head.Line-1]
	found := filledComment.FindSubmatchIndex(e.line(x.head.Line))
	from, to, was := begin+found[0], begin+found[1], string(e.data[begin+found[2]:begin+found[3]])
	if e.lineOf(e.offset(x.value)) == x.head.Line && e.offset(x.value) < from {
		from = e.offset(x.value)
	}
	if was == "empty" {
		from, was = e.afterColon(x.head), ""
	}
	e.cut(from, to, was)
	if x.last > x.head.Line {
		e.cutLines(x.head.Line+1, x.last)
	}
}

// afterColon returns the offset behind the colon of a key.
func (e *editor) afterColon(key *yaml.Node) int {
	at := e.content(key)
	if key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		at = e.skipQuoted(at)
	} else {
		at += len(key.Value)
	}
	for at < len(e.data) && e.data[at] != ':' {
		at++
	}
	return min(at+1, len(e.data))
}

// endOf returns the offset of the end of a line, before its break.
func (e *editor) endOf(line int) int {
	end := e.starts[line]
	return end - breakLength(e.data[:end])
}

// indented writes lines further to the right.
func indented(lines string, by int) string {
	var out strings.Builder
	for line := range strings.Lines(lines) {
		if line != "\n" {
			out.WriteString(strings.Repeat(" ", by))
		}
		out.WriteString(line)
	}
	return out.String()
}
